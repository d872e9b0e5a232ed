"""Content for a machine that a file describes."""

import os
from pathlib import Path

import pytest

from api.hardware import Driver, Gpu, Machine
from api.pci import PciAddress, Place
from api.refusals import Refused
from kubeletplugin.cdi.content import ClaimDevice, claim_spec
from kubeletplugin.cdi.roots import Root
from kubeletplugin.cdi.simulated import SimulatedContent
from kubeletplugin.cdi.spec import DeviceNode, Mount, to_document
from kubeletplugin.cdi.validate import problems
from tests.support.driver_root import device_numbers, make_driver_root

GPU = Gpu(Place(PciAddress(0, 0x65, 0, 0)), "GPU-1", minor=3, product_name="NVIDIA L40S")
MACHINE = Machine(gpus=(GPU,), driver=Driver("580.105.08"), simulated=True)


def a_root(path: Path) -> Root:
    return Root(path / "seen", Path("/var/lib/lanewise/machine"))


def test_own_node_is_found_under_the_root(tmp_path: Path):
    """A real runtime makes it in the container as /dev/nvidia3."""
    content = SimulatedContent(a_root(tmp_path), stat_of=device_numbers({"nvidia3": (1, 3)}))
    assert content.device(MACHINE, GPU).device_nodes == (
        DeviceNode("/dev/nvidia3", "/var/lib/lanewise/machine/dev/nvidia3", "c", 1, 3, "rw"),
    )


def test_plain_file_is_mounted_instead(tmp_path: Path):
    """Where making device nodes was not permitted."""
    (tmp_path / "seen/dev").mkdir(parents=True)
    (tmp_path / "seen/dev/nvidia3").write_text("")
    (tmp_path / "seen/dev/nvidiactl").write_text("")
    content = SimulatedContent(a_root(tmp_path))
    (mount,) = content.device(MACHINE, GPU).mounts
    assert (mount.host_path, mount.container_path) == ("/var/lib/lanewise/machine/dev/nvidia3", "/dev/nvidia3")
    assert "ro" in mount.options
    assert [mount.container_path for mount in content.common(MACHINE).mounts] == ["/dev/nvidiactl"]


def test_missing_node_is_named(tmp_path: Path):
    """Somebody emptied the root."""
    with pytest.raises(Refused, match="/seen/dev/nvidia3: neither a device node nor a file is here"):
        SimulatedContent(a_root(tmp_path)).device(MACHINE, GPU)


def test_claim_has_environment_node_and_driver_files(tmp_path: Path):
    """All that a container can look at, from a made-up driver root."""
    driver = Root(make_driver_root(tmp_path / "driver", "580.105.08"), Path("/opt/driver"))
    content = SimulatedContent(a_root(tmp_path), driver, stat_of=device_numbers({"nvidia3": (195, 3)}))
    document = to_document(claim_spec("gpu.lanewise.dev", "u1", [ClaimDevice("gpu-65-00-0", GPU)], MACHINE, content))
    assert problems(document) == ()
    (device,) = document["devices"]
    assert device["containerEdits"]["env"] == [
        "LANEWISE_DEVICE_GPU_65_00_0=GPU-1",
        "LANEWISE_DEVICE_GPU_65_00_0_PRODUCT=NVIDIA L40S",
    ]
    assert document["containerEdits"]["env"] == ["NVIDIA_VISIBLE_DEVICES=void"]
    assert {"hostPath", "containerPath", "options"} == set(document["containerEdits"]["mounts"][0])
    sources = {mount["containerPath"]: mount["hostPath"] for mount in document["containerEdits"]["mounts"]}
    assert (
        sources["/usr/lib/x86_64-linux-gnu/libcuda.so.1"]
        == "/opt/driver/usr/lib/x86_64-linux-gnu/libcuda.so.580.105.08"
    )


def test_machine_with_another_driver_than_the_root_is_refused(tmp_path: Path):
    """As on a real one."""
    driver = Root.same(make_driver_root(tmp_path / "driver", "575.57.08"))
    with pytest.raises(Refused, match=r"no libcuda\.so\.580\.105\.08 here"):
        SimulatedContent(a_root(tmp_path), driver).common(MACHINE)


def test_real_node_of_any_number_is_read(tmp_path: Path):
    """Whatever major the simulation chose."""
    (tmp_path / "seen/dev").mkdir(parents=True)
    try:
        os.mknod(tmp_path / "seen/dev/nvidia3", 0o20666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("making device nodes needs CAP_MKNOD")
    edits = SimulatedContent(a_root(tmp_path)).device(MACHINE, GPU)
    assert [(node.major, node.minor) for node in edits.device_nodes] == [(1, 5)]
    assert not any(isinstance(mount, Mount) for mount in edits.mounts)
