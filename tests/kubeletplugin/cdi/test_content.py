"""Choosing where content comes from, and putting a claim's file together."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.hardware import Gpu, Machine
from api.names import gpu_device_name
from api.pci import PciAddress, Place
from api.refusals import Refused
from kubeletplugin.cdi.builtin import BuiltinContent, Places
from kubeletplugin.cdi.content import ClaimDevice, Content, choose, claim_spec
from kubeletplugin.cdi.ctk import CtkContent, Ran
from kubeletplugin.cdi.roots import Root
from kubeletplugin.cdi.spec import DeviceNode, Edits, Spec, to_document
from kubeletplugin.cdi.validate import problems
from tests.support.cdi_schema import accepts
from tests.support.driver_root import make_driver_root
from tests.support.properties import FEW

DRIVER = "gpu.lanewise.dev"


class PlainContent:
    """A node for each GPU, and something in common."""

    def common(self, machine: Machine) -> Edits:
        return Edits(env=("NVIDIA_VISIBLE_DEVICES=void",))

    def device(self, machine: Machine, gpu: Gpu) -> Edits:
        return Edits(device_nodes=(DeviceNode(f"/dev/nvidia{gpu.minor}", type="c", major=195, minor=gpu.minor),))


def places(driver: Path, host: Path | None = None) -> Places:
    return Places(
        driver=Root(driver, Path("/run/nvidia/driver")),
        dev=Root.same(Path("/")),
        host=Root(host, Path("/")) if host is not None else None,
    )


def nowhere(_name: str) -> None:
    return None


def test_auto_takes_the_tool_where_it_is(tmp_path: Path):
    """Under the driver root, on the host, on the PATH; our own where it is nowhere."""
    without = make_driver_root(tmp_path / "without")
    with_it = make_driver_root(tmp_path / "with", ctk=True)
    assert isinstance(choose("auto", places(without), which=nowhere), BuiltinContent)
    assert isinstance(choose("auto", places(with_it), which=nowhere), CtkContent)
    assert isinstance(choose("auto", places(without, with_it), which=nowhere), CtkContent)
    assert isinstance(choose("auto", places(without), which=lambda name: f"/opt/bin/{name}"), CtkContent)


def test_builtin_is_builtin_though_the_tool_is_there(tmp_path: Path):
    """Asked for is asked for."""
    assert isinstance(choose("builtin", places(make_driver_root(tmp_path, ctk=True))), BuiltinContent)


def test_the_tool_found_is_the_tool_run(tmp_path: Path):
    """By the path where we see it."""
    asked = []

    def run(argv):
        asked.append(argv[0])
        return Ran(1, "", "no")

    driver = make_driver_root(tmp_path, ctk=True)
    gpu = Gpu(Place(PciAddress(0, 1, 0, 0)), "GPU-1", minor=0)
    with pytest.raises(Refused):
        choose("nvidia-ctk", places(driver), which=nowhere, run=run).device(Machine(gpus=(gpu,)), gpu)
    assert asked == [f"{driver}/usr/bin/nvidia-ctk"]


def test_missing_tool_that_was_asked_for_is_refused_at_start(tmp_path: Path):
    """One sentence with the remedy."""
    with pytest.raises(Refused) as refused:
        choose("nvidia-ctk", places(tmp_path / "driver", tmp_path / "host"), which=nowhere)
    assert str(refused.value) == (
        f"--cdi-mode: nvidia-ctk was asked for, and is neither at {tmp_path}/host/usr/bin/nvidia-ctk, "
        f"{tmp_path}/driver/usr/bin/nvidia-ctk nor on the PATH "
        "(install the NVIDIA Container Toolkit, or use auto or builtin)"
    )


def test_unknown_mode_is_refused_with_those_there_are(tmp_path: Path):
    """A typing error."""
    with pytest.raises(Refused, match="'ctk' is no mode"):
        choose("ctk", places(tmp_path))


ADDRESSES = st.builds(PciAddress, st.sampled_from([0, 1]), st.integers(0, 255), st.integers(0, 31), st.just(0))


@st.composite
def claims(draw: st.DrawFn) -> tuple[Machine, list[ClaimDevice]]:
    addresses = draw(st.lists(ADDRESSES, min_size=1, max_size=8, unique=True))
    minors = draw(st.permutations(range(len(addresses))))
    product = st.none() | st.text(max_size=10)
    gpus = tuple(
        Gpu(Place(address), f"GPU-{address}", minor=minor, product_name=draw(product))
        for address, minor in zip(addresses, minors, strict=True)
    )
    chosen = draw(st.lists(st.sampled_from(gpus), min_size=1, max_size=4, unique=True))
    shares = st.none() | st.uuids().map(str)
    return Machine(gpus=gpus), [ClaimDevice(gpu_device_name(gpu.place.address), gpu, draw(shares)) for gpu in chosen]


def spec_of(claim: tuple[Machine, list[ClaimDevice]], uid: str, content: Content | None = None) -> Spec:
    machine, devices = claim
    return claim_spec(DRIVER, uid, devices, machine, content or PlainContent())


@FEW
@given(claims(), st.uuids().map(str))
def test_every_claim_makes_a_valid_file(claim: tuple[Machine, list[ClaimDevice]], uid: str):
    """Any devices, any product names, UIDs that begin with a digit or a letter."""
    document = to_document(spec_of(claim, uid))
    assert problems(document) == ()
    assert accepts(document)
    assert document["cdiVersion"] == ("0.5.0" if uid[0].isdigit() else "0.3.0")
    assert all(device["name"].startswith(f"{uid}-") for device in document["devices"])


@FEW
@given(claims())
def test_device_gets_its_own_node_and_no_other(claim: tuple[Machine, list[ClaimDevice]]):
    """Case F5, for any numbering."""
    for made, asked in zip(spec_of(claim, "u1").devices, claim[1], strict=True):
        assert [node.path for node in made.edits.device_nodes] == [f"/dev/nvidia{asked.gpu.minor}"]


def test_two_shares_of_one_gpu_are_two_devices():
    """One claim may hold a shared device twice."""
    gpu = Gpu(Place(PciAddress(0, 0x65, 0, 0)), "GPU-1", minor=0)
    spec = spec_of((Machine(gpus=(gpu,)), [ClaimDevice("gpu-65-00-0", gpu, share) for share in ("s1", "s2")]), "u1")
    assert [device.name for device in spec.devices] == ["u1-gpu-65-00-0-s1", "u1-gpu-65-00-0-s2"]
    assert problems(to_document(spec)) == ()
