"""Where the driver's NVML library is, and which file of that name this process has loaded.

A process keeps the library that it loaded first: that the file is another one by now says that a new process would fare
otherwise.
"""

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

from api.refusals import Refused

LIBRARY = "libnvidia-ml.so.1"
_LIBRARY_DIRS = (
    "usr/lib/x86_64-linux-gnu",  # Debian, Ubuntu
    "usr/lib/aarch64-linux-gnu",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib/aarch64-linux-gnu/nvidia/current",
    "usr/lib64",  # RHEL, SUSE, Amazon Linux
    "usr/lib",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "lib64",  # also GKE's /home/kubernetes/bin/nvidia
    "lib",
    "usr/local/nvidia/lib64",
    "usr/local/glibc/usr/lib",  # Talos
    "usr/lib/wsl/lib",
    "run/opengl-driver/lib",  # NixOS
)


@dataclass(frozen=True, slots=True)
class DriverAbsent:
    """There is no NVML to ask."""

    driver_root: Path
    why: str

    @property
    def what(self) -> str:
        return f"no NVIDIA driver below {self.driver_root}: {self.why}"

    @property
    def remedy(self) -> str:
        return "install the driver, or name where it is with --driver-root; the plugin looks again by itself"


File = tuple[int, int, int, int]
"""What makes a file another one: device, inode, size, time of the last change in ns."""


def file_of(path: Path) -> File | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def load(driver_root: Path) -> File | None:
    """Load the driver's library before pynvml asks for it by name; which file that was, None where it is not known.

    pynvml's own call then resolves to this one by its SONAME, which needs RTLD_GLOBAL (tried).
    """
    library = find_library(driver_root)
    if library is None:
        if driver_root == Path("/"):
            return None  # the dynamic linker may know a place that we do not
        raise Refused(DriverAbsent(driver_root, f"{LIBRARY} was not found"))
    loaded = file_of(library)
    try:
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise Refused(DriverAbsent(driver_root, f"{library} cannot be loaded: {error}")) from error
    return loaded


def find_library(driver_root: Path) -> Path | None:
    """The driver's NVML. A directory of that name is passed over: container runtimes make one when they mount a file
    that is not there (kubernetes-sigs/dra-driver-nvidia-gpu#1272)."""
    for directory in _LIBRARY_DIRS:
        candidate = _inside(driver_root, driver_root / directory / LIBRARY)
        if candidate is not None and candidate.is_file():
            return candidate
    return None


def _inside(root: Path, path: Path) -> Path | None:
    """The file behind `path`, absolute links taken as the root's own; None where the links go in circles."""
    for _ in range(16):
        if not path.is_symlink():
            return path
        target = path.readlink()
        path = root / target.relative_to("/") if target.is_absolute() else Path(os.path.normpath(path.parent / target))
    return None
