"""Builds the library of this folder, and puts it into a made-up driver root with what it has to say.

`installed` is enough for most tests. `told` makes the text for some GPUs; `Says` changes what one of them answers.
"""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pynvml

from api.hardware import Driver, Gpu
from tests.cluster.build import one_at_a_time
from tests.cluster.places import cache
from tests.upstream.build import c_compiler

SOURCE = Path(__file__).with_name("fakenvml.c")
TEXT = "fakenvml.txt"
FLAGS = (
    "-shared",
    "-fPIC",
    "-O1",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fvisibility=hidden",
    "-Wl,-soname,libnvidia-ml.so.1",
)

# By NVML's own names, so that a wrong number in our tables shows.
_BRANDS = {
    "Quadro": pynvml.NVML_BRAND_QUADRO,
    "Tesla": pynvml.NVML_BRAND_TESLA,
    "GeForce": pynvml.NVML_BRAND_GEFORCE,
    "NvidiaRTX": pynvml.NVML_BRAND_NVIDIA_RTX,
    "QuadroRTX": pynvml.NVML_BRAND_QUADRO_RTX,
    "Nvidia": pynvml.NVML_BRAND_NVIDIA,
}
_ARCHITECTURES = {
    "Volta": pynvml.NVML_DEVICE_ARCH_VOLTA,
    "Turing": pynvml.NVML_DEVICE_ARCH_TURING,
    "Ampere": pynvml.NVML_DEVICE_ARCH_AMPERE,
    "Ada Lovelace": pynvml.NVML_DEVICE_ARCH_ADA,
    "Hopper": pynvml.NVML_DEVICE_ARCH_HOPPER,
    "Blackwell": pynvml.NVML_DEVICE_ARCH_BLACKWELL,
}


@dataclass(frozen=True, slots=True)
class Says:
    """What a GPU answers beside what it is: values by the keys of fakenvml.c, error codes by function (`*` for all)."""

    values: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)


def build(*, old_driver: bool = False) -> Path:
    """The compiled library; `old_driver` lacks the newer functions. ClusterError says what to install where that cannot be."""
    compiler = c_compiler()
    flags = (*FLAGS, "-DOLD_DRIVER") if old_driver else FLAGS
    key = hashlib.sha256(SOURCE.read_bytes() + repr((compiler, flags)).encode()).hexdigest()[:16]
    goal = cache().parent / "upstream" / f"fakenvml-{key}.so"
    goal.parent.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(goal.with_suffix(".lock")):
        if not goal.is_file():
            with tempfile.TemporaryDirectory(dir=goal.parent) as unfinished:
                output = Path(unfinished) / "library.so"
                subprocess.run([compiler, *flags, "-o", output, SOURCE, "-lpthread", "-ldl"], check=True)
                output.rename(goal)
    return goal


def told(
    gpus: Iterable[Gpu],
    driver: Driver,
    says: Mapping[str, Says] = {},  # read only
    *,
    first: Iterable[str] = (),
    xids: Iterable[tuple[int, int]] = (),
) -> str:
    """The library's text: GPUs in NVML's order, `says` by UUID, `first` as lines of the driver, Xids as (index, number)."""
    major, minor = (driver.cuda_version or "0.0").split(".")
    lines = [f"driver {driver.version}", f"cuda {int(major) * 1000 + int(minor) * 10}", *first]
    lines += [f"xid {index} {number}" for index, number in xids]
    for gpu in gpus:
        more = says.get(gpu.uuid, Says())
        lines += ["gpu", *(f"{key} {value}" for key, value in {**_values(gpu), **more.values}.items())]
        lines += [f"error {function} {code}" for function, code in more.errors.items()]
    return "\n".join(lines) + "\n"


def _values(gpu: Gpu) -> dict[str, str]:
    address = gpu.place.address
    pci = f"{address.domain:08X}:{address.bus:02X}:{address.device:02X}.{address.function:X}"
    values = {"uuid": gpu.uuid, "pci": pci, "name": gpu.product_name, "minor": gpu.minor, "memory": gpu.memory_bytes}
    values |= {"brand": _BRANDS.get(gpu.brand or ""), "architecture": _ARCHITECTURES.get(gpu.architecture or "")}
    if gpu.compute_capability is not None:
        values["capability"] = gpu.compute_capability.replace(".", " ")
    if gpu.mig_enabled is not None:
        values["mig"] = f"{int(gpu.mig_enabled)} {int(gpu.mig_enabled)}"
    return {key: str(value) for key, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class FakeDriver:
    """A driver root with the library in it."""

    root: Path
    library: Path

    def say(self, text: str) -> None:
        """From now on, to whoever has the library open."""
        path = self.library.with_name(TEXT)
        temporary = path.with_suffix(".new")
        temporary.write_text(text)
        temporary.replace(path)


def installed(root: Path, version: str, text: str, *, old_driver: bool = False) -> FakeDriver:
    """The library in place of the NVML of the driver root `root`, which `tests.support.driver_root` may have made."""
    directory = root / "usr/lib/x86_64-linux-gnu"
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / f"libnvidia-ml.so.{version}"
    library.unlink(missing_ok=True)
    library.write_bytes(build(old_driver=old_driver).read_bytes())
    link = directory / "libnvidia-ml.so.1"
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(library, directory))
    driver = FakeDriver(root, library)
    driver.say(text)
    return driver
