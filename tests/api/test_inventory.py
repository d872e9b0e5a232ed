"""NodeInventory objects: written and read back."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.hardware import Driver, Gpu, LeftOut, Machine, Nic
from api.inventory import Instance, Owner, decode, encode_instance, encode_spec
from api.pci import PciAddress, Place
from api.refusals import Refused

OWNER = Owner("node-a", "uid-a")

addresses = st.builds(
    PciAddress, st.integers(0, 0xFFFFFFFF), st.integers(0, 0xFF), st.integers(0, 0x1F), st.integers(0, 7)
)
words = st.text(min_size=1, max_size=12)
names = st.lists(words, max_size=2).map(tuple)
places = st.builds(
    Place,
    addresses,
    st.none() | st.sampled_from(["pci0000:15", "pci0001:00"]),
    st.booleans(),
    st.lists(addresses, max_size=3).map(tuple),
    st.none() | st.integers(0, 63),
)
gpus = st.builds(
    Gpu,
    places,
    words,
    st.none() | st.integers(0, 254),
    st.none() | words,
    st.none() | words,
    st.none() | words,
    st.none() | words,
    st.none() | st.integers(1, 1 << 50),
    st.none() | st.booleans(),
)
nics = st.builds(
    Nic,
    places,
    st.sampled_from(["ethernet", "infiniband"]),
    st.none() | words,
    st.none() | words,
    names,
    names,
    st.none() | addresses.map(str),
)
machines = st.builds(
    Machine,
    st.lists(gpus, max_size=2).map(tuple),
    st.lists(nics, max_size=2).map(tuple),
    st.builds(Driver, st.none() | words, st.none() | words),
    words,
    st.lists(st.builds(LeftOut, words, words), max_size=2).map(tuple),
    st.booleans(),
)


@settings(deadline=None, max_examples=50)
@given(machines)
def test_machine_survives_being_stored(machine: Machine) -> None:
    """Through JSON, with what is not known kept unknown."""
    stored = json.loads(json.dumps(encode_spec(OWNER, machine)))
    read = decode(stored)
    assert (read.node, read.node_uid, read.machine) == ("node-a", "uid-a", machine)


@settings(deadline=None, max_examples=25)
@given(machines)
def test_nothing_is_stored_as_null(machine: Machine) -> None:
    """The API server drops nulls, and what it drops would differ from what we wrote for ever."""

    def has_null(value: Any) -> bool:
        match value:
            case dict():
                return any(map(has_null, value.values()))
            case list():
                return any(map(has_null, value))
        return value is None

    assert not has_null(encode_spec(OWNER, machine))


def test_instance_survives_being_stored() -> None:
    """Its entry stands beside the spec."""
    instance = Instance(
        "pod-1", registered=True, lease="pod-1.node-a", version="0.1.0", started_at="2026-01-01T00:00:00Z"
    )
    stored = {**encode_spec(OWNER, Machine(boot_id="b007")), "status": encode_instance("node-a", instance)["status"]}
    assert decode(stored).instances == (instance,)


def test_instance_that_leaves_takes_its_entry_away() -> None:
    """An empty status, applied by its own manager, owns nothing any more."""
    assert encode_instance("node-a", None)["status"] == {}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"gpus": [{"pciAddress": "nowhere", "uuid": "GPU-1"}]}, "'nowhere' is no PCI address"),
        ({"gpus": [{"pciAddress": "0000:65:00.0"}]}, "missing field 'uuid'"),
    ],
)
def test_object_that_somebody_broke_is_refused(spec: dict[str, Any], problem: str) -> None:
    """With the object's name, and what to do."""
    with pytest.raises(Refused) as refused:
        decode({"metadata": {"name": "node-a"}, "spec": spec})
    assert str(refused.value).startswith(f"nodeinventory node-a: {problem}")
    assert "kubectl delete it" in str(refused.value)


GPU = {"pciAddress": "0000:65:00.0", "uuid": "GPU-1"}


@pytest.mark.parametrize(
    "parts",
    [
        *({"spec": spec} for spec in ("x", [1], {"gpus": "x"}, {"gpus": 5}, {"gpus": [None]}, {"gpus": ["x"]})),
        *({"spec": {"gpus": [{**GPU, field: 5.5}]}} for field in ("uuid", "productName", "memoryBytes", "numaNode")),
        *({"spec": {"gpus": [{**GPU, field: 5}]}} for field in ("pciAddress", "pcieRoot", "bridges", "migEnabled")),
        {"spec": {"gpus": [{**GPU, "minor": True}]}},
        {"spec": {"gpus": [{**GPU, "bridges": [5]}]}},
        {"spec": {"gpus": [{**GPU, "bridges": "0000:65:00.0"}]}},
        {"spec": {"driver": "x"}},
        {"spec": {"driver": {"version": 5}}},
        {"spec": {"bootID": 5}},
        {"spec": {"nics": [{}]}},
        {"spec": {"leftOut": [{"what": 1, "why": "x"}]}},
        {"spec": {"leftOut": "abc"}},
        {"status": "x"},
        *({"status": {"instances": instances}} for instances in ("abc", [None], [{}], [{"id": 5}])),
        {"status": {"instances": [{"id": "i1", "lease": ["x"]}]}},
        {"metadata": {"name": "node-a", "ownerReferences": [{"kind": "Node"}]}},
        {"metadata": {"name": "node-a", "ownerReferences": "x"}},
    ],
)
def test_what_no_schema_would_let_in_is_refused(parts: dict[str, Any]) -> None:
    """Where the schema of the definition is missing or was changed: a reason, and nobody else's inventory suffers."""
    with pytest.raises(Refused, match=r"^nodeinventory node-a: "):
        decode({"metadata": {"name": "node-a"}, **parts})
