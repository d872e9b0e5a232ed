"""Which files under a driver root belong to the driver.

Found by looking, each time something there changed: a driver root is replaced under a running plugin when the driver or
the toolkit is upgraded (Case F4). How they get into a container is `kubeletplugin.cdi.drivermounts`.
"""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from api.refusals import Refused
from kubeletplugin.cdi.elf import read_soname
from kubeletplugin.cdi.roots import Root

_TRIPLETS = ("x86_64-linux-gnu", "aarch64-linux-gnu")
LIBRARY_DIRS = (
    "/usr/lib64",
    *(f"/usr/lib/{triplet}{below}" for triplet in _TRIPLETS for below in ("", "/nvidia/current")),
    "/lib64",
    *(f"/lib/{triplet}{below}" for triplet in _TRIPLETS for below in ("", "/nvidia/current")),
)
"""Where distributions put the driver's 64-bit libraries: RHEL and SUSE, then Debian and Ubuntu (as nvidia-ctk 1.20)."""

_BINARY_DIRS = ("/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin")
_BINARIES = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
)
_FIRMWARE_DIRS = ("/lib/firmware/nvidia", "/usr/lib/firmware/nvidia")
_CONFIG_DIRS = ("/etc", "/usr/share")
_CONFIGS = {"OpenCL/vendors/nvidia.icd": "/etc/OpenCL/vendors/nvidia.icd"}
"""What tells a loader in the container of a library: in the first of the directories that has it, and where it belongs."""
_SOCKETS = ("/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket")

_VERSIONED = re.compile(r"(?:libcuda|libnvidia-ml)\.so\.(\d+(?:\.\d+)+)")
_OWN_VERSION = re.compile(r"libnvidia-nvvm70\.so\.[\d.]+")
"""Of the driver, though its version is not in the name."""
_KNOWN_SONAMES = {"libcuda": "libcuda.so.1", "libnvidia-ml": "libnvidia-ml.so.1"}
"""What nothing works without, for a file whose own word cannot be read."""
_FURTHER_NAMES = {
    "libcuda": ("libcuda.so",),  # what dlopen("libcuda.so") of PyTorch, Numba and others finds
    "libnvidia-opticalflow": ("libnvidia-opticalflow.so",),
    "libGLX_nvidia": ("libGLX_indirect.so.0",),
}


@dataclass(frozen=True, slots=True)
class DriverFilesMissing:
    """There is no driver, or not this one, under the driver root."""

    path: Path
    """What was looked for."""
    problem: str
    remedy: str

    @property
    def what(self) -> str:
        return f"{self.path}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Library:
    """A shared library of the driver."""

    path: str
    """Within the driver root, without symbolic links."""
    name: str
    """Its file name in the library directory."""
    links: tuple[str, ...]
    """The other names by which it is looked for, the SONAME first."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Another file of the driver."""

    path: str
    """Within the driver root, without symbolic links."""
    target: str
    """In the container."""


@dataclass(frozen=True, slots=True)
class DriverFiles:
    """A driver of one version, as it lies under a root."""

    version: str
    library_dir: str
    """Within the driver root, without symbolic links."""
    libraries: tuple[Library, ...]
    binaries: tuple[Placed, ...]
    firmware: tuple[Placed, ...]
    sockets: tuple[Placed, ...]
    configs: tuple[Placed, ...] = ()


Fingerprint = tuple[tuple[str, int, int, int] | None, ...]


class DriverFilesCache:
    """The driver's files, looked up again when a directory they are in is not what it was."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self._last: tuple[tuple[Fingerprint, str | None], DriverFiles] | None = None

    def files(self, version: str | None) -> DriverFiles:
        """As `find`. A failure is not remembered, so it heals with its cause."""
        key = (fingerprint(self.root), version)  # taken first: what changes during the search is seen the next time
        last = self._last
        if last is not None and last[0] == key:
            return last[1]
        files = find(self.root, version)
        self._last = (key, files)
        return files


def fingerprint(root: Root) -> Fingerprint:
    """What changes when the driver's files do: identity and time of the root and of each directory that may hold some."""
    configs = (f"{directory}/{name}" for directory in _CONFIG_DIRS for name in _CONFIGS)
    below = (f"{path}/vdpau" for path in LIBRARY_DIRS)
    paths = ("/", *LIBRARY_DIRS, *below, *_BINARY_DIRS, *_FIRMWARE_DIRS, *_SOCKETS, *configs)
    return tuple(_identity(root, path) for path in paths)


def find(root: Root, version: str | None) -> DriverFiles:
    """The files of the driver of this version (`580.105.08`, as the kernel module says), or of the one there is.

    Raises Refused with DriverFilesMissing, which names the path.
    """
    library_dir, version = _library_dir(root, version)
    return DriverFiles(
        version=version,
        library_dir=library_dir,
        libraries=tuple(_libraries(root, library_dir, version)),
        binaries=tuple(_binaries(root)),
        firmware=tuple(_firmware(root, version)),
        sockets=tuple(_sockets(root)),
        configs=tuple(_configs(root)),
    )


def _library_dir(root: Root, wanted: str | None) -> tuple[str, str]:
    if not root.seen.is_dir():
        remedy = "see that the driver is installed, and that the driver root is mounted into the plugin's container"
        raise Refused(DriverFilesMissing(root.seen, "no directory, so the driver root is not there", remedy))
    others: dict[str, str] = {}
    for path in LIBRARY_DIRS:
        directory = root.resolve(path)
        if directory is None:
            continue
        versions = {match[1] for name in _names(root, directory) if (match := _VERSIONED.fullmatch(name))}
        if wanted is not None and wanted in versions:
            return directory, wanted
        if wanted is None and versions:
            return directory, _current(root, directory, versions)
        others |= dict.fromkeys(versions, directory)
    if others:
        found = ", ".join(f"{version} in {root.at(directory)}" for version, directory in sorted(others.items()))
        raise Refused(
            DriverFilesMissing(
                root.seen,
                f"no libcuda.so.{wanted} here, which the loaded kernel module needs; found {found}",
                "load the kernel module of the installed driver (often a reboot), or point the driver root at the right one",
            )
        )
    problem = f"no libcuda.so.{wanted or '*'} in any of {', '.join(LIBRARY_DIRS)}"
    raise Refused(DriverFilesMissing(root.seen, problem, "install the NVIDIA driver there, or set the driver root"))


def _current(root: Root, directory: str, versions: set[str]) -> str:
    """Of several, the one that the linker's own link means, or the highest: upgrades leave old files behind."""
    for link in _KNOWN_SONAMES.values():
        target = root.resolve(f"{directory}/{link}")
        match = _VERSIONED.fullmatch(target.rpartition("/")[2]) if target else None
        if match is not None and match[1] in versions:
            return match[1]
    return max(versions, key=lambda version: [int(part) for part in version.split(".")])


def _libraries(root: Root, library_dir: str, version: str) -> Iterator[Library]:
    for prefix in ("", "vdpau/"):
        for name in _names(root, f"{library_dir}/{prefix}"):
            if not (name.endswith(f".so.{version}") or _OWN_VERSION.fullmatch(name)):
                continue
            path = root.resolve(f"{library_dir}/{prefix}{name}")
            if path is None or not root.at(path).is_file():
                continue  # a directory of that name was seen in the field (dra-driver-nvidia-gpu #1272)
            stem = name.partition(".so")[0]
            soname = read_soname(root.at(path)) or _KNOWN_SONAMES.get(stem)
            links = ((soname,) if soname else ()) + _FURTHER_NAMES.get(stem, ())
            yield Library(path, prefix + name, tuple(prefix + link for link in dict.fromkeys(links) if link != name))


def _binaries(root: Root) -> Iterator[Placed]:
    for name in _BINARIES:
        for directory in _BINARY_DIRS:
            path = root.resolve(f"{directory}/{name}")
            if path is not None and root.at(path).is_file():
                yield Placed(path, f"/usr/bin/{name}")
                break


def _firmware(root: Root, version: str) -> Iterator[Placed]:
    for directory in _FIRMWARE_DIRS:
        names = [
            name for name in _names(root, f"{directory}/{version}") if name.startswith("gsp") and name.endswith(".bin")
        ]
        for name in names:
            path = root.resolve(f"{directory}/{version}/{name}")
            if path is not None:
                yield Placed(path, f"/lib/firmware/nvidia/{version}/{name}")
        if names:
            return


def _configs(root: Root) -> Iterator[Placed]:
    for name, target in _CONFIGS.items():
        paths = (root.resolve(f"{directory}/{name}") for directory in _CONFIG_DIRS)
        path = next((path for path in paths if path is not None and root.at(path).is_file()), None)
        if path is not None:
            yield Placed(path, target)


def _sockets(root: Root) -> Iterator[Placed]:
    for socket in _SOCKETS:
        path = root.resolve(socket)
        if path is not None and stat.S_ISSOCK(root.at(path).lstat().st_mode):
            yield Placed(path, socket)


def _names(root: Root, directory: str) -> list[str]:
    """Sorted, so that equal trees give equal files whatever the file system's order."""
    resolved = root.resolve(directory)
    if resolved is None:
        return []
    try:
        return sorted(os.listdir(root.at(resolved)))  # noqa: PTH208  # names are wanted
    except OSError:
        return []


def _identity(root: Root, path: str) -> tuple[str, int, int, int] | None:
    resolved = root.resolve(path)
    if resolved is None:
        return None
    try:
        seen = os.stat(f"{root.seen}{resolved}")  # noqa: PTH116  # asked at every prepare; Path costs ten times more
    except OSError:
        return None
    return resolved, seen.st_dev, seen.st_ino, seen.st_mtime_ns
