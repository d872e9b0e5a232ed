"""The limits of the API, checked before anything is written."""

import pytest

from controller.validate import faults_of_device, faults_of_pool, faults_of_slice, is_attribute_name, is_label_name


def a_device(**changes):
    return {"name": "gpu-65-00-0", "attributes": {"type": {"string": "gpu"}}, **changes}


def a_slice(devices=(), **changes):
    pool = {"name": "node-a/gpu.lanewise.dev", "resourceSliceCount": 1}
    return {"driver": "gpu.lanewise.dev", "nodeName": "node-a", "pool": pool, "devices": list(devices), **changes}


@pytest.mark.parametrize(
    "name", ["numa-1", "1st", "a" * 33, "socket-268435456", "a/b/c", "/a", "a/", "UPPER.dev/x", "d" * 64 + "/x", ""]
)
def test_names_that_are_none(name):
    """Case I7: what a generator must not produce."""
    assert not is_attribute_name(name)


@pytest.mark.parametrize("name", ["type", "_x1", "a" * 32, "resource.kubernetes.io/pciBusID", "d.e/A_1"])
def test_names_that_are(name):
    """Bare and qualified C identifiers."""
    assert is_attribute_name(name)


def test_label_names():
    """A taint's key is a label key."""
    assert is_label_name("lanewise.dev/unreachable")
    assert not is_label_name("lanewise.dev/")
    assert not is_label_name("a b")


@pytest.mark.parametrize(
    ("device", "fault"),
    [
        (a_device(name="GPU_0"), "the name 'GPU_0' is no DNS label"),
        (a_device(attributes={"a": {"string": "x" * 65}}), "attribute a is longer than 64 bytes"),
        (a_device(attributes={"a": {"string": "ä" * 33}}), "attribute a is longer than 64 bytes"),
        (a_device(attributes={"a": {"version": "580.105.08"}}), "attribute a is no semantic version: '580.105.08'"),
        (a_device(attributes={"a": {}}), "attribute a has 0 values instead of one"),
        (a_device(attributes={"a": {"int": 2**63}}), f"attribute a is out of range: {2**63}"),
        (a_device(attributes={"a": {"int": True}}), "attribute a has a value that is no int: True"),
        (
            a_device(capacity={"memory": {"value": "80GB"}}),
            "capacity memory: '80GB' is no quantity; one looks like 80Gi, 1500m or 1e3",
        ),
        (
            a_device(attributes={f"a{n}": {"int": n} for n in range(33)}),
            "33 attributes and 0 capacities are more than 32 together",
        ),
        (
            a_device(taints=[{"key": "k", "value": "v", "effect": "Never"}]),
            "taint effect 'Never' is none of None, NoSchedule, NoExecute",
        ),
        (a_device(taints=[{"key": "k", "value": "a b", "effect": "None"}]), "taint value 'a b' is no label value"),
        (a_device(taints=[{"key": f"k{n}", "effect": "None"} for n in range(17)]), "17 taints are more than 16"),
    ],
)
def test_what_is_wrong_with_a_device_is_said(device, fault):
    """Each limit has its phrase."""
    assert faults_of_device(device) == (fault,)


def test_a_good_slice_has_no_fault():
    """Nothing is refused that the API server takes."""
    assert faults_of_pool([a_slice([a_device()])]) == ()


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        (a_slice([a_device(name=f"gpu-{n}") for n in range(65)]), "65 devices are more than 64"),
        (a_slice(driver="GPU"), "the driver's name 'GPU' is no DNS subdomain of at most 63 bytes"),
        (a_slice(allNodes=True), "exactly one node selection is needed, here are 2"),
        (a_slice(sharedCounters=[]), "devices and shared counters belong in slices of their own"),
        (
            a_slice(pool={"name": "a//b", "resourceSliceCount": 1}),
            "the pool's name 'a//b' is not made of DNS subdomains with slashes between",
        ),
    ],
)
def test_what_is_wrong_with_a_slice_is_said(spec, fault):
    """Case I3: 64 devices a slice, among others."""
    assert faults_of_slice(spec) == (fault,)


def test_a_node_with_a_very_long_name_has_no_pool():
    """253 bytes are for node and driver together."""
    name = ".".join(["n" * 60] * 4)
    (fault,) = faults_of_slice(
        a_slice(nodeName=name, pool={"name": f"{name}/gpu.lanewise.dev", "resourceSliceCount": 1})
    )
    assert fault == "the pool's name has 260 bytes, at most 253 are taken; shorten the node's or the driver's name"


def test_names_are_unique_in_the_pool():
    """Also across slices."""
    slices = [a_slice([a_device()], pool={"name": "p", "resourceSliceCount": 2}) for _ in range(2)]
    assert faults_of_pool(slices) == ("2 devices are named gpu-65-00-0",)


def test_counts_agree():
    """A wrong count makes the pool incomplete for ever."""
    assert faults_of_pool([a_slice(pool={"name": "p", "resourceSliceCount": 2})]) == (
        "slice 0: resourceSliceCount is 2, the pool has 1",
    )
