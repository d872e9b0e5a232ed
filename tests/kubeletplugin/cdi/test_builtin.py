"""Content found out without NVIDIA's tools."""

import json
import os
from pathlib import Path

import pytest

from api.hardware import Driver, Gpu, Machine
from api.pci import PciAddress, Place
from api.refusals import Refused
from kubeletplugin.cdi.builtin import BuiltinContent, Places
from kubeletplugin.cdi.content import ClaimDevice, claim_spec
from kubeletplugin.cdi.roots import Root
from kubeletplugin.cdi.spec import encode, to_document
from kubeletplugin.cdi.validate import problems
from tests.support.driver_root import device_numbers, make_driver_root

VERSION = "580.105.08"
UID = "6f0a3c1e-93d4-4f6c-9a55-0d3f6f1f2b11"
CONTROL = {"nvidiactl": (195, 255), "nvidia-uvm": (505, 0), "nvidia-uvm-tools": (505, 1), "nvidia-modeset": (195, 254)}
GOLDEN = Path(__file__).with_name("golden")


def a_gpu(bus: int, minor: int | None) -> Gpu:
    return Gpu(Place(PciAddress(0, bus, 0, 0)), f"GPU-{bus:02x}", minor=minor, product_name="NVIDIA A100-SXM4-40GB")


def a_machine(*gpus: Gpu) -> Machine:
    return Machine(gpus=gpus, driver=Driver(VERSION, "13.0"))


def a_content(path: Path, nodes: dict[str, tuple[int, int]], *, hook: bool = False, mode: int = 0o666, gid: int = 0):
    make_driver_root(path / "driver", VERSION, hook=hook)
    places = Places(
        driver=Root(path / "driver", Path("/run/nvidia/driver")),
        dev=Root(path / "host", Path("/")),
        sys=path / "sys",
    )
    return BuiltinContent(places, stat_of=device_numbers(nodes, mode=mode, gid=gid))


def a_render_node(path: Path, gpu: Gpu, *names: str) -> None:
    for name in names:
        (path / f"sys/bus/pci/devices/{gpu.place.address}/drm/{name}").mkdir(parents=True)


@pytest.mark.parametrize("hook", [False, True], ids=["without-hook", "with-hook"])
def test_claim_gets_the_recorded_document(tmp_path: Path, hook: bool):
    """The whole file of a claim on two GPUs, one of them with graphics nodes. LANEWISE_RECORD=1 records it anew."""
    one, two = a_gpu(0x65, 0), a_gpu(0xCA, 1)
    a_render_node(tmp_path, one, "card1", "renderD128", "card1-DP-1")
    nodes = {**CONTROL, "nvidia0": (195, 0), "nvidia1": (195, 1), "dri/card1": (226, 1), "dri/renderD128": (226, 128)}
    content = a_content(tmp_path, nodes, hook=hook)
    devices = [ClaimDevice("gpu-65-00-0", one), ClaimDevice("gpu-ca-00-0", two, "5e1c44a2-0001-4000-8000-000000000001")]
    document = to_document(claim_spec("gpu.lanewise.dev", UID, devices, a_machine(one, two), content))
    assert problems(document) == ()
    golden = GOLDEN / f"claim-{'with' if hook else 'without'}-hook.json"
    if os.environ.get("LANEWISE_RECORD"):
        golden.write_text(json.dumps(document, indent=2) + "\n")
    assert document == json.loads(golden.read_text())
    assert encode(document) == encode(json.loads(golden.read_text()))


def test_node_is_the_minor_number_never_the_index(tmp_path: Path):
    """Case F5: index 0 is minor 2, 1 is 3, 2 is 0."""
    gpus = [a_gpu(0x10, 2), a_gpu(0x20, 3), a_gpu(0x30, 0)]
    content = a_content(tmp_path, {**CONTROL, **{f"nvidia{minor}": (195, minor) for minor in range(4)}})
    machine = a_machine(*gpus)
    nodes = [content.device(machine, gpu).device_nodes for gpu in gpus]
    assert [[(node.path, node.major, node.minor) for node in found] for found in nodes] == [
        [("/dev/nvidia2", 195, 2)],
        [("/dev/nvidia3", 195, 3)],
        [("/dev/nvidia0", 195, 0)],
    ]


def test_two_gpus_with_one_minor_are_refused(tmp_path: Path):
    """Case F5: whoever gets the node might get the other's GPU; a third is not concerned."""
    one, two, three = a_gpu(0x10, 1), a_gpu(0x20, 1), a_gpu(0x30, 0)
    content = a_content(tmp_path, {**CONTROL, "nvidia0": (195, 0), "nvidia1": (195, 1)})
    machine = a_machine(one, two, three)
    with pytest.raises(Refused) as refused:
        claim_spec("gpu.lanewise.dev", UID, [ClaimDevice("gpu-10-00-0", one)], machine, content)
    assert refused.value.reason.what == (
        "/dev/nvidia1 is the node of GPU-10 and of GPU-20, by what the driver says of both"
    )
    assert claim_spec("gpu.lanewise.dev", UID, [ClaimDevice("gpu-30-00-0", three)], machine, content).devices


def test_node_of_another_number_is_refused(tmp_path: Path):
    """Case F5: somebody made /dev/nvidia0 with another GPU's number."""
    content = a_content(tmp_path, {**CONTROL, "nvidia0": (195, 3)})
    with pytest.raises(Refused) as refused:
        content.device(a_machine(), a_gpu(0x10, 0))
    assert refused.value.reason.what == (
        f"{tmp_path}/host/dev/nvidia0: has minor number 3, so it is not the node of GPU GPU-10"
    )


def test_gpu_without_a_minor_number_is_refused(tmp_path: Path):
    """Case F5: there is no guessing."""
    with pytest.raises(Refused, match=r"GPU GPU-10 at 0000:10:00\.0: its driver tells no minor number"):
        a_content(tmp_path, CONTROL).device(a_machine(), a_gpu(0x10, None))


def test_missing_node_is_named_with_a_remedy(tmp_path: Path):
    """The GPU fell off the bus, or nobody made its node yet."""
    with pytest.raises(Refused) as refused:
        a_content(tmp_path, CONTROL).device(a_machine(), a_gpu(0x10, 0))
    assert refused.value.reason.what == f"{tmp_path}/host/dev/nvidia0: no device node here"
    assert "nvidia-modprobe" in refused.value.reason.remedy


@pytest.mark.parametrize("missing", ["nvidiactl", "nvidia-uvm"])
def test_missing_control_node_is_named(tmp_path: Path, missing: str):
    """CUDA would start with "unknown error" in a running pod; nvidia-uvm is often not there after boot."""
    nodes = {name: number for name, number in CONTROL.items() if name != missing}
    with pytest.raises(Refused, match=f"/host/dev/{missing}: no device node here"):
        a_content(tmp_path, nodes).common(a_machine())


def test_control_nodes_that_do_not_exist_are_left_out(tmp_path: Path):
    """modeset and the UVM tools are welcome, not needed; UVM's major is what the kernel gave."""
    nodes = {"nvidiactl": (195, 255), "nvidia-uvm": (511, 0)}
    found = a_content(tmp_path, nodes).common(a_machine()).device_nodes
    assert [(node.path, node.major, node.minor) for node in found] == [
        ("/dev/nvidiactl", 195, 255),
        ("/dev/nvidia-uvm", 511, 0),
    ]


def test_group_of_a_closed_node_is_given_to_the_container(tmp_path: Path):
    """NVreg_DeviceFileMode=0660 with a group: the process needs it. Graphics nodes ask for none, to stay below 0.7.0."""
    gpu = a_gpu(0x10, 0)
    a_render_node(tmp_path, gpu, "renderD128")
    nodes = {**CONTROL, "nvidia0": (195, 0), "dri/renderD128": (226, 128)}
    assert a_content(tmp_path, nodes, mode=0o660, gid=44).device(a_machine(gpu), gpu).additional_gids == (44,)
    assert a_content(tmp_path, nodes).device(a_machine(gpu), gpu).additional_gids == ()


def test_upgraded_driver_is_seen_without_a_restart(tmp_path: Path):
    """Case F4, at the next prepare."""
    content = a_content(tmp_path, CONTROL)
    assert any(VERSION in mount.host_path for mount in content.common(a_machine()).mounts)
    make_driver_root(tmp_path / "driver", "590.10.01")
    upgraded = Machine(driver=Driver("590.10.01"))
    mounts = content.common(upgraded).mounts
    assert any("590.10.01" in mount.host_path for mount in mounts)
    assert not any(VERSION in mount.host_path for mount in mounts)


def test_real_device_nodes_are_read(tmp_path: Path):
    """Through os.stat, with numbers as made."""
    dev = tmp_path / "host/dev"
    dev.mkdir(parents=True)
    try:
        os.mknod(dev / "nvidia2", 0o20666, os.makedev(195, 2))
    except PermissionError:
        pytest.skip("making device nodes needs CAP_MKNOD")
    places = Places(driver=Root.same(tmp_path), dev=Root.same(tmp_path / "host"), sys=tmp_path)
    (node,) = BuiltinContent(places).device(a_machine(), a_gpu(0x10, 2)).device_nodes
    assert (node.host_path, node.type, node.major, node.minor) == (f"{dev}/nvidia2", "c", 195, 2)
