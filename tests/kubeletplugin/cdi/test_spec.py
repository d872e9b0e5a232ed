"""The document made of a spec."""

import json
from dataclasses import replace

import pytest

from kubeletplugin.cdi.spec import (
    CdiDevice,
    DeviceNode,
    Edits,
    Hook,
    Mount,
    Spec,
    edits_of,
    encode,
    merged,
    to_document,
)

NODE = DeviceNode("/dev/nvidia0", type="c", major=195, minor=0)
EDITS = Edits(
    env=("A=1",),
    device_nodes=(NODE, DeviceNode("/dev/x", "/host/dev/x", "b", 8, 1, "rw", 0o660, 0, 44)),
    mounts=(Mount("/a", "/b", ("ro",)), Mount("tmpfs", "/t", (), "tmpfs")),
    hooks=(Hook("createContainer", "/bin/hook", ("hook", "x"), ("D=1",), 5),),
    additional_gids=(44,),
)


SOME = Edits(env=("A=1",))
NONE = Edits()


def a_spec(name: str = "gpu-0", edits: Edits = SOME, common: Edits = NONE, kind: str = "v/claim") -> Spec:
    return Spec(kind, (CdiDevice(name, edits),), common)


def version(spec: Spec) -> str:
    return to_document(spec)["cdiVersion"]


@pytest.mark.parametrize(
    ("spec", "least"),
    [
        (a_spec(), "0.3.0"),
        (a_spec(edits=Edits(mounts=(Mount("/a", "/b"),))), "0.3.0"),
        (a_spec(edits=Edits(mounts=(Mount("/a", "/b", type="bind"),))), "0.4.0"),
        (a_spec(common=Edits(mounts=(Mount("/a", "/b", type="bind"),))), "0.4.0"),
        (a_spec("0a-gpu"), "0.5.0"),
        (a_spec(common=Edits(device_nodes=(replace(NODE, host_path="/root/dev/nvidia0"),))), "0.5.0"),
        (a_spec(edits=Edits(device_nodes=(replace(NODE, host_path=NODE.path),))), "0.3.0"),
        (a_spec(kind="gpu.lanewise.dev/claim"), "0.3.0"),
        (a_spec(kind="v/claim.x"), "0.6.0"),
        (a_spec(edits=Edits(additional_gids=(44,))), "0.7.0"),
    ],
)
def test_version_is_the_lowest_that_the_used_fields_need(spec: Spec, least: str):
    """An old runtime refuses versions it does not know; every runtime refuses one that is too low."""
    assert version(spec) == least


def test_host_path_is_left_out_where_it_is_the_path():
    """It would ask for 0.5.0 and say nothing."""
    document = to_document(a_spec(edits=Edits(device_nodes=(replace(NODE, host_path=NODE.path),))))
    assert document["devices"][0]["containerEdits"]["deviceNodes"] == [
        {"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}
    ]


def test_empty_parts_are_left_out():
    """A device with nothing but an environment has no other field."""
    assert to_document(a_spec()) == {
        "cdiVersion": "0.3.0",
        "kind": "v/claim",
        "devices": [{"name": "gpu-0", "containerEdits": {"env": ["A=1"]}}],
    }


def test_edits_survive_the_way_through_a_document():
    """Reading what was written gives what was meant."""
    document = json.loads(encode(to_document(a_spec(edits=EDITS))))
    assert edits_of(document["devices"][0]["containerEdits"]) == EDITS


def test_edits_that_no_gpu_needs_are_not_dropped_silently():
    """A tool that prints a network device means it."""
    with pytest.raises(ValueError, match="netDevices"):
        edits_of({"netDevices": [{"hostInterfaceName": "a", "name": "b"}]})


def test_merging_keeps_order_and_says_nothing_twice():
    """Two sources naming one node make one node."""
    other = Edits(env=("B=2", "A=1"), device_nodes=(NODE,))
    assert merged((Edits(env=("A=1",), device_nodes=(NODE,)), other)) == Edits(("A=1", "B=2"), (NODE,))


def test_equal_specs_give_equal_bytes():
    """So that a file that says the same is not written again."""
    assert encode(to_document(a_spec(edits=EDITS))) == encode(to_document(a_spec(edits=replace(EDITS))))


def test_text_is_written_so_that_yaml_reads_it():
    """Runtimes read CDI files as YAML, which refuses pairs of surrogates, and what is not printable unless it is escaped."""
    written = encode(to_document(a_spec(edits=Edits(env=("A=\U0001f600\x7f\x9fé",)))))
    assert '"A=\U0001f600\\u007f\\u009f\\u00e9"'.encode() in written
    assert json.loads(written)["devices"][0]["containerEdits"]["env"] == ["A=\U0001f600\x7f\x9fé"]
