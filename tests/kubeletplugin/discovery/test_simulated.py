"""Machines rendered from their files, and found again."""

import os
import random
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from api.hardware import Machine
from api.names import gpu_device_name
from api.refusals import Refused
from kubeletplugin.discovery.machinefile import read
from kubeletplugin.discovery.simulated import CannotMakeNodes, SimulatedSource, render
from tests.support.machines import ALL, TWO_GPUS, a_machine


def snapshot(root: Path) -> dict[str, tuple[int, int, str]]:
    """Every entry below root: inode, type, and where a link leads or what a file says."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content = str(path.readlink()) if path.is_symlink() else path.read_text() if path.is_file() else ""
        found[str(path.relative_to(root))] = (status.st_ino, stat.S_IFMT(status.st_mode), content)
    return found


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_rendered_machine_is_found_as_written(path: Path, rendered: Callable[[Path], Path]) -> None:
    """The code that reads real nodes finds every GPU and NIC of the file in its place."""
    root = rendered(path)
    machine = SimulatedSource(path, root, "node-a", nodes="plain").discover()
    written = read(path, node="node-a")
    assert machine == Machine(
        gpus=written.gpus,
        nics=written.nics,
        driver=written.driver,
        boot_id=(root / "proc/sys/kernel/random/boot_id").read_text().strip(),
        simulated=True,
    )
    assert {node.name for node in (root / "dev").iterdir()} == {
        "nvidiactl",
        "nvidia-uvm",
        "nvidia-uvm-tools",
        *(f"nvidia{gpu.minor}" for gpu in written.gpus),
    }


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_order_of_the_file_changes_nothing(path: Path, tmp_path: Path, rendered: Callable[[Path], Path]) -> None:
    """Number and names of devices are the same whatever order they come in, and rendering finds nothing to do."""
    root = rendered(path)
    before = snapshot(root)
    written = read(path, node="node-a")
    document = yaml.load(path.read_text(), Loader=yaml.BaseLoader)
    for index, gpu in enumerate(document["gpus"]):
        gpu.setdefault("minor", str(index))
    for field in ("gpus", "nics"):
        random.Random(7).shuffle(document.get(field, []))
    shuffled = tmp_path / "shuffled.yaml"
    shuffled.write_text(yaml.safe_dump(document))
    machine = SimulatedSource(shuffled, root, "node-a", nodes="plain").discover()
    assert snapshot(root) == before
    assert (machine.gpus, machine.nics) == (written.gpus, written.nics)
    names = [gpu_device_name(gpu.place.address) for gpu in machine.gpus]
    assert len(set(names)) == len(names)


def test_tree_looks_as_the_kernel_lays_it_out(tmp_path: Path) -> None:
    """Real directories, and links from the bus."""
    render(a_machine(), tmp_path, nodes="plain")
    entry = tmp_path / "sys/bus/pci/devices/0000:54:00.0"
    assert str(entry.readlink()) == "../../../devices/pci0000:50/0000:50:01.0/0000:51:00.0/0000:52:01.0/0000:54:00.0"
    assert (entry / "class").read_text() == "0x020700\n"
    assert (entry / "numa_node").read_text() == "0\n"
    assert (entry / "net/ib0").is_dir()
    assert (tmp_path / "sys/bus/pci/devices/0000:51:00.0/class").read_text() == "0x060400\n"
    assert str((entry.with_name("0000:64:00.0") / "driver").readlink()) == "../../../bus/pci/drivers/nvidia"
    assert (tmp_path / "sys/bus/pci/drivers/nvidia").is_dir()


def test_rendering_again_touches_nothing(tmp_path: Path) -> None:
    """A plugin that restarts under running pods finds its device nodes and boot id as they were."""
    machine = a_machine()
    render(machine, tmp_path, nodes="plain")
    before = snapshot(tmp_path)
    render(machine, tmp_path, nodes="plain")
    assert snapshot(tmp_path) == before


def test_changed_file_is_a_changed_machine(tmp_path: Path) -> None:
    """Without a restart: what went from the file goes from the tree, the rest stays as it was."""
    file = tmp_path / "machine.yaml"
    file.write_text(TWO_GPUS)
    source = SimulatedSource(file, tmp_path / "root", "node-a", nodes="plain")
    before, kept = source.discover(), snapshot(tmp_path / "root")
    lines = [line for line in TWO_GPUS.splitlines() if "0000:64:00.0" not in line]
    file.write_text("\n".join(lines).replace("net: [ib0]", "net: [ib7]"))
    after = source.discover()
    assert after.gpus == before.gpus[:1]
    assert after.nics[0].net_names == ("ib7",)
    assert after.boot_id == before.boot_id
    assert not (tmp_path / "root/dev/nvidia1").exists()
    assert not (tmp_path / "root/sys/devices/pci0000:60").exists()
    now = snapshot(tmp_path / "root")
    assert now["dev/nvidia0"] == kept["dev/nvidia0"]
    assert not [name for name in now if name.endswith(".new")]


def test_gpu_moved_in_the_tree_is_found_in_its_new_place(tmp_path: Path) -> None:
    """The link of the bus leads to one place only."""
    file = tmp_path / "machine.yaml"
    file.write_text(TWO_GPUS)
    source = SimulatedSource(file, tmp_path / "root", "node-a", nodes="plain")
    source.discover()
    file.write_text(TWO_GPUS.replace("pci0000:60: [", "pci0000:61: ["))
    assert source.discover().gpus[1].place.root == "pci0000:61"


def test_unchanged_file_is_not_rendered_again(tmp_path: Path) -> None:
    """A look at an unchanged machine writes nothing, so what a test takes from the tree stays away."""
    file = tmp_path / "machine.yaml"
    file.write_text(TWO_GPUS)
    source = SimulatedSource(file, tmp_path / "root", "node-a", nodes="plain")
    source.discover()
    (tmp_path / "root/sys/bus/pci/devices/0000:64:00.0").unlink()
    (tmp_path / "root/proc/sys/kernel/random/boot_id").write_text("rebooted\n")
    machine = source.discover()
    assert (len(machine.gpus), machine.boot_id) == (1, "rebooted")


def test_file_that_became_bad_is_refused_and_the_tree_stays(tmp_path: Path) -> None:
    """Running pods keep their device nodes while somebody edits."""
    file = tmp_path / "machine.yaml"
    file.write_text(TWO_GPUS)
    source = SimulatedSource(file, tmp_path / "root", "node-a", nodes="plain")
    good, before = source.discover(), snapshot(tmp_path / "root")
    file.write_text("name: [")
    with pytest.raises(Refused, match=r"machine.yaml:1: is no YAML"):
        source.discover()
    file.unlink()
    with pytest.raises(Refused, match="cannot be read"):
        source.discover()
    assert snapshot(tmp_path / "root") == before
    file.write_text(TWO_GPUS)
    assert source.discover() == good


def test_folder_of_somebody_elses_is_refused(tmp_path: Path) -> None:
    """Naming / by mistake must not sweep its /dev."""
    (tmp_path / "precious").touch()
    with pytest.raises(Refused) as refused:
        render(a_machine(), tmp_path, nodes="plain")
    remedy = "name a folder that is empty or does not exist yet"
    assert str(refused.value) == f"{tmp_path}: is not empty and holds no simulated machine ({remedy})"
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """One sentence with the path."""
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match="cannot be used for a simulated machine"):
        render(a_machine(), tmp_path / "file", nodes="plain")


def test_missing_permission_for_device_nodes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what would help."""

    def mknod(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "mknod", mknod)
    with pytest.raises(Refused) as refused:
        render(a_machine(), tmp_path)
    assert refused.value.reason == CannotMakeNodes(tmp_path / "dev/nvidiactl", "Operation not permitted")


def test_auto_takes_files_where_nodes_are_not_permitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an ordinary user, or in a user namespace: the same names, and nothing left of the trial."""

    def mknod(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "mknod", mknod)
    render(a_machine(), tmp_path, nodes="auto")
    found = {path.name: path.is_file() for path in (tmp_path / "dev").iterdir()}
    assert found == dict.fromkeys(("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"), True)


def test_auto_makes_device_nodes_where_it_may(tmp_path: Path) -> None:
    """As `devices` does."""
    try:
        os.mknod(tmp_path / "probe", 0o600 | stat.S_IFCHR, os.makedev(195, 0))
    except PermissionError:
        pytest.skip("this process may not make device nodes")
    root = tmp_path / "root"
    render(a_machine(), root, nodes="auto")
    kinds = {path.name: stat.S_ISCHR(path.lstat().st_mode) for path in (root / "dev").iterdir()}
    assert kinds == dict.fromkeys(("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"), True)


def test_device_nodes_have_the_numbers_of_the_file(tmp_path: Path) -> None:
    """Real character devices, which a container runtime can inject; unchanged ones keep their inode."""
    machine = a_machine(TWO_GPUS.replace("0000:53:00.0, numa: 0", "0000:53:00.0, minor: 4"))
    try:
        os.mknod(tmp_path / "probe", 0o600 | stat.S_IFCHR, os.makedev(195, 0))
    except PermissionError:
        pytest.skip("this process may not make device nodes")
    root = tmp_path / "root"
    render(machine, root)
    numbers = {path.name: path.stat().st_rdev for path in (root / "dev").iterdir()}
    assert numbers == {
        "nvidia4": os.makedev(195, 4),
        "nvidia1": os.makedev(195, 1),
        "nvidiactl": os.makedev(195, 255),
        "nvidia-uvm": os.makedev(511, 0),
        "nvidia-uvm-tools": os.makedev(511, 1),
    }
    assert stat.S_IMODE((root / "dev/nvidia4").stat().st_mode) == 0o666
    inode = (root / "dev/nvidia4").stat().st_ino
    (root / "dev/nvidia1").unlink()
    (root / "dev/nvidia1").touch()
    render(machine, root)
    assert (root / "dev/nvidia4").stat().st_ino == inode
    assert stat.S_ISCHR((root / "dev/nvidia1").stat().st_mode)


def test_two_processes_may_render_one_root(tmp_path: Path) -> None:
    """In a rolling update the new plugin starts beside the old one."""
    machine = a_machine()
    wrong: list[Exception] = []

    def render_often() -> None:
        try:
            for _ in range(5):
                render(machine, tmp_path, nodes="plain")
        except (Refused, OSError) as error:
            wrong.append(error)

    threads = [threading.Thread(target=render_often) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_virtual_function_is_linked_to_its_physical_one(tmp_path: Path) -> None:
    """SR-IOV as sysfs shows it."""
    text = """
name: vf
gpus: []
eachNic: {kind: ethernet, numa: 0}
nics:
- {pci: 0000:27:00.0}
- {pci: 0000:27:00.2, physicalFunction: 0000:27:00.0}
tree: {pci0000:26: {0000:26:01.0: [0000:27:00.0, 0000:27:00.2]}}
"""
    file = tmp_path / "machine.yaml"
    file.write_text(text)
    machine = SimulatedSource(file, tmp_path / "root", "node-a", nodes="plain").discover()
    assert [nic.physical_function for nic in machine.nics] == [None, "0000:27:00.0"]
    assert machine.nics[1].place.root == "pci0000:26"
