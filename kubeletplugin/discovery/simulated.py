"""A machine that is not there: its file rendered as sysfs, proc and device nodes below a root of ours.

sysfs is rendered as the kernel lays it out, so the code that reads a real node's places reads these too. Rendering again
changes only what differs, because running containers hold device nodes of the tree. What a machine file may say is
`kubeletplugin.discovery.machinefile`.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from api.hardware import Gpu, LeftOut, Machine
from api.refusals import BadInput, Refused
from kubeletplugin.discovery import machinefile, sysfs
from kubeletplugin.discovery.machinefile import Function, MachineFile
from kubeletplugin.discovery.source import LOST, unseen, without_twins

Nodes = Literal["devices", "plain", "auto"]
"""`devices`: real character devices by mknod, which needs CAP_MKNOD. `plain`: empty files of the same names. `auto`: devices
where the kernel lets us make them, else files."""

_MARKER = ".lanewise-simulated"
"""Tells our roots from folders that somebody named by mistake: /, say, whose /dev we would sweep. Also the lock file, with the
machine's name in it."""
_BOOT_ID = "proc/sys/kernel/random/boot_id"
_NVIDIA_MAJOR = 195
"""Of /dev/nvidiaN and /dev/nvidiactl: Linux, Documentation/admin-guide/devices.txt."""
_CONTROL_MINOR = 255
_UVM_MAJOR = 511
"""Made up: the real one is given by the kernel when the module loads."""


@dataclass(frozen=True, slots=True)
class CannotMakeNodes:
    """The kernel does not let this process make device nodes."""

    path: Path
    why: str

    @property
    def what(self) -> str:
        return f"{self.path}: a device node cannot be made here: {self.why}"

    @property
    def remedy(self) -> str:
        where = "with the root on a file system that takes device nodes"
        return f"run as root with CAP_MKNOD, {where}; or use --machine-nodes=plain"


class SimulatedSource:
    """The hardware of a machine file. Not for use by several threads."""

    def __init__(self, machine_file: Path, root: Path, node: str, *, nodes: Nodes = "devices") -> None:
        """`root` is where the machine is rendered; `node` goes into UUIDs, so that no two nodes share one."""
        self._path, self._root, self._node, self._nodes = machine_file, root, node, nodes
        self._read: tuple[bytes, MachineFile] | None = None

    def discover(self) -> Machine:
        """See `Source.discover`. Reads the file anew, and renders it when it changed. Refused when it is malformed; what
        was rendered before stays."""
        machine = self._current()
        scanned = sysfs.scan(self._root / "sys")
        places = {function.place.address: function.place for function in scanned.gpus}
        gpus = [replace(gpu, place=places[gpu.place.address]) for gpu in machine.gpus if gpu.place.address in places]
        lost = tuple(LeftOut(str(gpu.place.address), LOST) for gpu in gpus if machine.health[gpu.uuid].lost)
        kept, twins = without_twins(gpu for gpu in gpus if not machine.health[gpu.uuid].lost)
        not_listed = unseen(scanned.gpus, frozenset(gpu.place.address for gpu in gpus))
        return Machine(
            gpus=kept,
            nics=scanned.nics,
            driver=machine.driver,
            boot_id=sysfs.boot_id(self._root / "proc"),
            left_out=tuple(
                sorted((*scanned.left_out, *lost, *twins, *not_listed), key=lambda item: (item.what, item.why))
            ),
            simulated=True,
        )

    def _current(self) -> MachineFile:
        try:
            content = self._path.read_bytes()
        except OSError:
            content = b""  # `machinefile.read` says it better
        if self._read is None or self._read[0] != content:
            machine = machinefile.read(self._path, node=self._node)
            render(machine, self._root, nodes=self._nodes)
            self._read = (content, machine)
        return self._read[1]


def render(machine: MachineFile, root: Path, *, nodes: Nodes = "devices") -> None:
    """Make `root` show this machine: `sys/`, `proc/sys/kernel/random/boot_id` and `dev/`. A machine of another name is another
    machine, and so begins with a boot.

    Safe to repeat, and to do in two processes at once (a rolling update has two plugins). A boot id that is there stays.
    Refused when the root is a folder of somebody else's, or when device nodes cannot be made.
    """
    with _locked(root):
        try:
            boot_id = root / _BOOT_ID
            if not boot_id.is_file() or (root / _MARKER).read_text(encoding="utf-8") not in ("", machine.name):
                boot_id.parent.mkdir(parents=True, exist_ok=True)
                _write(boot_id, f"{uuid.uuid4()}\n")
            (root / _MARKER).write_text(machine.name, encoding="utf-8")  # in place: its lock is held
            _render_nodes(machine.gpus, root / "dev", nodes)
            _render_sysfs(machine.functions, root / "sys")
        except OSError as error:
            problem = f"the simulated machine cannot be written: {error.strerror or error}"
            remedy = "see that the disk has room, or name another folder with --machine-root"
            raise Refused(BadInput(str(error.filename2 or error.filename or root), problem, remedy)) from error


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Hold the root for this process, after making sure that it is ours."""
    marker = root / _MARKER
    try:
        root.mkdir(parents=True, exist_ok=True)
        # In this order: another process may be making the marker, which comes before all else in a root of ours.
        if any(root.iterdir()) and not marker.exists():
            remedy = "name a folder that is empty or does not exist yet"
            raise Refused(BadInput(str(root), "is not empty and holds no simulated machine", remedy))
        descriptor = os.open(marker, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        problem = f"cannot be used for a simulated machine: {error.strerror}"
        raise Refused(BadInput(str(root), problem, "name a folder that this process may write")) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _render_nodes(gpus: tuple[Gpu, ...], directory: Path, nodes: Nodes) -> None:
    wanted = {
        "nvidiactl": os.makedev(_NVIDIA_MAJOR, _CONTROL_MINOR),
        "nvidia-uvm": os.makedev(_UVM_MAJOR, 0),
        "nvidia-uvm-tools": os.makedev(_UVM_MAJOR, 1),
        **{f"nvidia{gpu.minor}": os.makedev(_NVIDIA_MAJOR, gpu.minor) for gpu in gpus if gpu.minor is not None},
    }
    directory.mkdir(parents=True, exist_ok=True)
    if nodes == "auto":
        nodes = "devices" if _may_make_nodes(directory) else "plain"
    for name, number in wanted.items():
        path = directory / name
        if _is_node(path, number, nodes):
            continue
        temporary = directory / f".{name}.new"
        temporary.unlink(missing_ok=True)
        if nodes == "plain":
            temporary.touch()
        else:
            try:
                os.mknod(temporary, 0o666 | stat.S_IFCHR, number)
            except OSError as error:
                raise Refused(CannotMakeNodes(path, error.strerror or str(error))) from error
        temporary.chmod(0o666)  # past the umask, as the driver's own udev rules have it
        temporary.replace(path)
    for path in directory.iterdir():
        if path.name not in wanted:
            path.unlink()


def _may_make_nodes(directory: Path) -> bool:
    """Whether the kernel lets this process make a device node here. Asked by making one: a capability says too little, for
    it may be one of a user namespace, which is no leave to make nodes (mknod(2), EPERM)."""
    trial = directory / ".trial.new"
    trial.unlink(missing_ok=True)
    try:
        os.mknod(trial, 0o600 | stat.S_IFCHR, os.makedev(_NVIDIA_MAJOR, _CONTROL_MINOR))
    except OSError:
        return False
    trial.unlink()
    return True


def _is_node(path: Path, number: int, nodes: Nodes) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    if nodes == "plain":
        return stat.S_ISREG(found.st_mode)
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == number


def _render_sysfs(functions: tuple[Function, ...], root: Path) -> None:
    """Directories and files first, then the links that lead to them; what is stale goes in the opposite order."""
    paths = {function.address: root / function.path for function in functions}
    files: dict[Path, str] = {}
    links: dict[Path, str] = {}
    directories = {root, root / "devices", root / "bus/pci/devices", root / "bus/pci/drivers/nvidia"}
    for function in functions:
        path = paths[function.address]
        directories.add(path)
        directories.update(path / "net" / name for name in function.net_names)
        directories.update(path / "infiniband" / name for name in function.rdma_names)
        files[path / "class"] = function.pci_class
        files[path / "vendor"] = function.vendor or "0x0000"
        files[path / "device"] = function.device or "0x0000"
        files[path / "numa_node"] = str(-1 if function.numa_node is None else function.numa_node)
        entry = root / "bus/pci/devices" / str(function.address)
        links[entry] = os.path.relpath(path, entry.parent)
        if function.driver is not None:
            links[path / "driver"] = os.path.relpath(root / "bus/pci/drivers" / function.driver, path)
        if function.physical_function is not None and function.physical_function in paths:
            links[path / "physfn"] = os.path.relpath(paths[function.physical_function], path)
    for directory in sorted(directories):
        directory.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        _write(path, f"{text}\n")
    for path, target in links.items():
        _link(path, target)
    _sweep(root, directories, files.keys() | links.keys())


def _sweep(root: Path, directories: set[Path], files: set[Path]) -> None:
    """Remove what the machine does not have (any more)."""
    kept = directories | {parent for directory in directories for parent in directory.parents}
    stale_directories = []
    for folder, names, file_names in os.walk(root):
        here = Path(folder)
        for path in (here / name for name in (*names, *file_names)):
            if path.is_symlink() or not path.is_dir():
                if path not in files:
                    path.unlink()
            elif path not in kept:
                stale_directories.append(path)
        names[:] = [name for name in names if here / name in kept]
    for path in stale_directories:
        shutil.rmtree(path)


def _write(path: Path, text: str) -> None:
    """Replace the file as a whole, unless it says the same."""
    with contextlib.suppress(OSError):
        if path.read_text(encoding="utf-8") == text:
            return
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _link(path: Path, target: str) -> None:
    if path.is_symlink() and str(path.readlink()) == target:
        return
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(path)
