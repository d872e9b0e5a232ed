"""A made-up NVIDIA driver: a root with tiny but valid libraries, programs and firmware.

`make_driver_root(path, "580.105.08")` is enough for most tests; `device_numbers` stands in for device nodes where making
them is not permitted.
"""

import os
import stat
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

SONAMES = {
    "libcuda": "libcuda.so.1",
    "libcudadebugger": "libcudadebugger.so.1",
    "libnvidia-ml": "libnvidia-ml.so.1",
    "libnvidia-nvvm": "libnvidia-nvvm.so.4",
    "libnvidia-ptxjitcompiler": "libnvidia-ptxjitcompiler.so.1",
}
"""A compute driver's libraries, by the name in front of `.so.<version>`."""


def make_driver_root(
    path: Path,
    version: str = "580.105.08",
    *,
    library_dir: str = "usr/lib/x86_64-linux-gnu",
    sonames: Mapping[str, str | None] = SONAMES,
    hook: bool = False,
    ctk: bool = False,
) -> Path:
    """Make a driver of `version` below `path`, which is returned. Repeated with another version, it adds that one."""
    libraries = path / library_dir
    libraries.mkdir(parents=True, exist_ok=True)
    for name, soname in sonames.items():
        library = libraries / f"{name}.so.{version}"
        library.write_bytes(elf(soname))
        if soname is not None:
            link = libraries / soname
            link.unlink(missing_ok=True)
            link.symlink_to(library.name)
    programs = ["nvidia-smi", "nvidia-persistenced"]
    programs += ["nvidia-cdi-hook"] if hook else []
    programs += ["nvidia-ctk"] if ctk else []
    for name in programs:
        program = path / "usr/bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\nexit 0\n")
        program.chmod(0o755)
    firmware = path / "lib/firmware/nvidia" / version
    firmware.mkdir(parents=True, exist_ok=True)
    for name in ("gsp_ga10x.bin", "gsp_tu10x.bin"):
        (firmware / name).write_bytes(b"firmware")
    return path


def elf(soname: str | None, *, address: int = 0x1000) -> bytes:
    """A 64-bit shared library with nothing in it but its name; `address` is where it would be loaded."""
    names = b"\0" + (soname.encode() + b"\0" if soname is not None else b"")
    names_at = 64 + 2 * 56
    dynamic_at = names_at + len(names)
    entries = [(5, address + names_at)]  # DT_STRTAB
    entries += [(14, 1)] if soname is not None else []  # DT_SONAME
    dynamic = b"".join(struct.pack("<qQ", *entry) for entry in [*entries, (0, 0)])
    size = dynamic_at + len(dynamic)
    identity = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = struct.pack("<16sHHIQQQIHHHHHH", identity, 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, address, address, size, size, 0x1000)
    dynamic_segment = struct.pack(
        "<IIQQQQQQ", 2, 6, dynamic_at, address + dynamic_at, address + dynamic_at, len(dynamic), len(dynamic), 8
    )
    return header + load + dynamic_segment + names + dynamic


def device_numbers(
    nodes: Mapping[str, tuple[int, int]], *, mode: int = 0o666, gid: int = 0
) -> Callable[[Path], os.stat_result]:
    """An `os.stat` for which `nodes` (`{"nvidia0": (195, 0)}`, the path behind `/dev/`) are character devices, and nothing
    else is anywhere."""

    def stat_of(path: Path) -> os.stat_result:
        name = str(path).rpartition("/dev/")[2]
        if name not in nodes:
            raise FileNotFoundError(2, "No such file or directory", str(path))
        values = [stat.S_IFCHR | mode, 0, 0, 1, 0, gid, 0, 0, 0, 0]
        return os.stat_result(values, {"st_rdev": os.makedev(*nodes[name])})

    return stat_of
