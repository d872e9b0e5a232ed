"""Kernel module, sysfs, device nodes and NVML, together and each of them wrong."""

from dataclasses import replace

import pytest

from api.hardware import LeftOut
from api.pci import PciAddress, Place
from cli.doctor import hardware
from cli.doctor.hardware import Hardware
from kubeletplugin.discovery.machinefile import read
from kubeletplugin.discovery.nvml_library import DriverAbsent
from kubeletplugin.discovery.simulated import render
from kubeletplugin.discovery.sysfs import NvidiaFunction
from tests.support.diagnosis import lines, trouble
from tests.support.fake_nvml import FakeGpu, FakeNvml, installed
from tests.support.gpus import a_machine
from tests.support.machines import TWO_GPUS

FIRST, SECOND = PciAddress(0, 0x10, 0, 0), PciAddress(0, 0x18, 0, 0)
WELL = Hardware(
    module="580.105.08",
    functions=(NvidiaFunction(Place(FIRST), "nvidia"), NvidiaFunction(Place(SECOND), "nvidia")),
    unread=(),
    missing_nodes=(),
    nvml=a_machine(2),
)


def test_a_node_that_is_well():
    """A line for each thing that was looked at."""
    assert lines(hardware.judge(WELL)) == [
        "ok driver: the kernel module nvidia 580.105.08 is loaded",
        "ok sysfs: 2 GPUs with the driver nvidia",
        "ok device nodes: those that every CUDA program opens are there",
        "ok nvml: NVML lists 2 GPUs, driver 580.105.08",
    ]


def bound_to(driver):
    return replace(WELL, functions=(WELL.functions[0], NvidiaFunction(Place(SECOND), driver)))


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (replace(WELL, module=None), "failure driver: the kernel module nvidia is not loaded"),
        (replace(WELL, functions=()), "failure sysfs: no NVIDIA GPU is on the PCI bus"),
        (bound_to(None), "failure sysfs: 0000:18:00.0 has no driver"),
        (bound_to("nouveau"), "failure sysfs: 0000:18:00.0 is bound to nouveau, not to nvidia"),
        (
            bound_to("vfio-pci"),
            "warning sysfs: 0000:18:00.0 is bound to vfio-pci: it is given to virtual machines and not published",
        ),
        (replace(WELL, unread=("x: nonsense",)), "warning sysfs: x: nonsense"),
        (
            replace(WELL, missing_nodes=("nvidia-uvm",)),
            "failure device nodes: no /dev/nvidia-uvm: claims are refused without",
        ),
        (
            replace(WELL, nvml=a_machine(0)),
            "failure nvml: NVML lists no GPU that can be used",
        ),
        (
            replace(WELL, module="570.1"),
            "failure nvml: NVML is of driver 580.105.08, the loaded kernel module of 570.1",
        ),
        (
            replace(WELL, nvml=a_machine(1, left_out=(LeftOut(str(SECOND), "NVML does not list it"),))),
            "warning nvml: 0000:18:00.0 is left out: NVML does not list it",
        ),
    ],
)
def test_each_thing_that_can_be_wrong(seen, said):
    """One finding, and nothing else changes."""
    assert trouble(hardware.judge(seen)) == [said]


def test_what_sysfs_said_nvml_does_not_say_again():
    """A GPU without a driver is left out by NVML too: that is one fault."""
    seen = replace(bound_to(None), nvml=a_machine(1, left_out=(LeftOut(str(SECOND), "no driver bound"),)))
    assert trouble(hardware.judge(seen)) == ["failure sysfs: 0000:18:00.0 has no driver"]


def test_a_driver_that_is_not_there_is_told_with_its_remedy(tmp_path):
    """In the words of the plugin."""
    absent = DriverAbsent(tmp_path, "libnvidia-ml.so.1 was not found")
    (finding,) = [each for each in hardware.judge(replace(WELL, nvml=absent)) if each.level]
    assert (finding.what, finding.remedy) == (absent.what, absent.remedy)


def test_looking_at_a_machine(tmp_path):
    """A rendered one, with an NVML that answers for one GPU of two; names need not be UTF-8 (Case L7)."""
    (tmp_path / "two.yaml").write_text(TWO_GPUS)
    root = tmp_path / "machine"
    render(read(tmp_path / "two.yaml", node="node-a"), root, nodes="plain")
    module = root / "sys/module/nvidia"
    module.mkdir(parents=True)
    (module / "version").write_text("580.105.08\n")
    (root / "dev/nvidiactl").touch()
    (root / "dev/nvidia-uvm").unlink(missing_ok=True)
    with installed(FakeNvml([FakeGpu(name=b"\xf8")])):
        seen = hardware.look(root, root, root / "sys", tmp_path)
    assert [str(function.place.address) for function in seen.functions] == ["0000:53:00.0", "0000:64:00.0"]
    told = trouble(hardware.judge(seen))
    assert "failure device nodes: no /dev/nvidia-uvm: claims are refused without" in told
    assert any(line.startswith("warning nvml: 0000:64:00.0 is left out: ") for line in told)


def test_looking_where_nothing_is(tmp_path):
    """Everything fails, and nothing is raised."""
    with installed(None):
        seen = hardware.look(tmp_path, tmp_path, tmp_path / "sys", tmp_path / "proc")
    told = trouble(hardware.judge(seen))
    assert [line.split(":")[0] for line in told] == ["failure driver", "warning sysfs", "failure sysfs", "failure nvml"]
