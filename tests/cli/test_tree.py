"""A machine drawn as a tree."""

from dataclasses import replace

from api.hardware import LeftOut, Machine
from api.pci import PciAddress
from cli.tree import ASCII, lines
from kubeletplugin.discovery.machinefile import MachineFile, read
from tests.support.machines import ALL, EXAMPLES, TWO_GPUS, a_machine


def drawn(file: MachineFile, *left_out: LeftOut) -> str:
    machine = Machine(gpus=file.gpus, nics=file.nics, left_out=left_out)
    return "\n".join(lines(machine, "node-a"))


def test_what_is_near_hangs_together() -> None:
    """GPU and NIC below one switch; the other GPU on a root of its own, on another NUMA node."""
    assert drawn(a_machine()) == (
        "node-a\n"
        "├─ NUMA node 0\n"
        "│  └─ PCIe root pci0000:50, switch 0000:51:00.0\n"
        "│     ├─ GPU gpu-53-00-0  0000:53:00.0  NVIDIA H100 80GB HBM3, 81559 MiB\n"
        "│     └─ NIC ib0          0000:54:00.0  infiniband, mlx5_0\n"
        "└─ NUMA node 1\n"
        "   └─ PCIe root pci0000:60\n"
        "      └─ GPU gpu-64-00-0  0000:64:00.0  NVIDIA H100 80GB HBM3, 81559 MiB"
    )


def test_switches_below_switches_are_drawn_below_each_other() -> None:
    """A DGX A100: GPUs and NICs of one socket below two switches of one."""
    text = drawn(read(EXAMPLES / "dgx-a100.yaml", node="node-a"))
    assert (
        "├─ NUMA node 3\n"
        "│  └─ PCIe root pci0000:00, switch 0000:01:00.0\n"
        "│     ├─ switch 0000:03:00.0\n"
        "│     │  ├─ GPU gpu-07-00-0  0000:07:00.0  NVIDIA A100-SXM4-80GB, 81920 MiB\n"
        "│     │  └─ GPU gpu-0f-00-0  0000:0f:00.0  NVIDIA A100-SXM4-80GB, 81920 MiB\n"
        "│     └─ switch 0000:0a:00.0\n"
        "│        ├─ NIC ib0          0000:0c:00.0  infiniband, mlx5_0\n"
        "│        └─ NIC ib1          0000:12:00.0  infiniband, mlx5_1\n"
    ) in text


def test_every_device_is_drawn_once() -> None:
    """On every machine of examples/."""
    for path in ALL:
        file = read(path, node="node-a")
        text = drawn(file)
        for place in [device.place for device in (*file.gpus, *file.nics)]:
            assert text.count(f"  {place.address}  ") == 1, (path.name, str(place.address))


def test_the_innermost_switch_is_the_one_that_is_published() -> None:
    """Whatever the number of bridges: `Place.switch` decides."""
    file = a_machine()
    for count in range(2, 7):
        bridges = tuple(PciAddress(0, 0x20 + number, 0, 0) for number in range(count))
        gpu = replace(file.gpus[0], place=replace(file.gpus[0].place, bridges=bridges))
        (line,) = [line for line in lines(Machine(gpus=(gpu,)), "") if "switch" in line]
        assert line.endswith(f"switch {gpu.place.switch}"), line


def test_unknown_places_are_called_so() -> None:
    """No NUMA node on a T4's virtual machine; no root where the path shows none."""
    file = read(EXAMPLES / "aws-g4dn-t4.yaml", node="node-a")
    assert "└─ NUMA node not known" in drawn(file)
    lost = replace(file.gpus[0], place=replace(file.gpus[0].place, root=None, bridges=()))
    assert "PCIe root not known" in "\n".join(lines(Machine(gpus=(lost,)), ""))


def test_devices_of_one_root_on_different_numa_nodes_say_theirs() -> None:
    """A root belongs to no single node then."""
    file = a_machine(TWO_GPUS.replace("64:00.0, numa: 1", "64:00.0, numa: 2"))
    gpus = [replace(gpu, place=replace(gpu.place, root="pci0000:50", bridges=())) for gpu in file.gpus]
    text = "\n".join(lines(Machine(gpus=tuple(gpus)), "node-a"))
    assert "NUMA nodes 0, 2, each device its own" in text
    assert "81559 MiB, NUMA node 2" in text


def test_what_was_left_out_stands_at_the_end() -> None:
    """With the reason."""
    text = drawn(a_machine(), LeftOut("0000:65:00.0", "bound to vfio-pci, not to nvidia"))
    assert text.endswith("└─ left out: 0000:65:00.0  bound to vfio-pci, not to nvidia")


def test_mig_mode_is_told() -> None:
    """It is why such a GPU is not published."""
    assert "81559 MiB, MIG mode on" in drawn(a_machine(TWO_GPUS.replace("memoryMiB", "mig: true, memoryMiB")))


def test_ascii_is_enough() -> None:
    """For a terminal that cannot say more."""
    file = a_machine()
    text = "\n".join(lines(Machine(gpus=file.gpus, nics=file.nics), "node-a", marks=ASCII))
    assert text.isascii()
    assert "|  `- PCIe root pci0000:50, switch 0000:51:00.0\n|     |- GPU" in text


def test_a_machine_without_devices_is_its_title() -> None:
    """Nothing to draw."""
    assert lines(Machine(), "node-a") == ("node-a",)
