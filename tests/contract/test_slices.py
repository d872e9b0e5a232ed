"""What the API asks of ResourceSlices, asked of our API server and of the real one."""

import pytest

from tests.support.api_objects import ONE_DEVICE, SLICES, a_device, a_slice

TAINT = {"key": "example.com/gone", "effect": "NoSchedule"}


def _attributes(**attributes):
    return a_device(attributes=attributes)


def _devices(count):
    return [a_device(f"gpu-{i}") for i in range(count)]


def _sets(count, counters=1):
    counter = {f"c{i}": {"value": "1"} for i in range(counters)}
    return [{"name": f"set-{i}", "counters": counter} for i in range(count)]


def _consuming(count):
    return [{"counterSet": f"set-{i}", "counters": {"c0": {"value": "1"}}} for i in range(count)]


def _shared(**policy):
    return [a_device(allowMultipleAllocations=True, capacity={"m": {"value": "8Gi", "requestPolicy": policy}})]


def _on(**requirement):
    return {"nodeName": None, "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}


_POLICY = "spec.devices[0].capacity[m].requestPolicy"
_EXPRESSION = "spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0]"
_NO_TERMS = {"nodeName": None, "nodeSelector": {"nodeSelectorTerms": []}}
_PER_DEVICE = {"nodeName": None, "perDeviceNodeSelection": True}

REFUSED = {
    "129 devices": (_devices(129), {}, "spec.devices"),
    "65 devices with one taint": ([*_devices(64), a_device("t", taints=[TAINT])], {}, "spec.devices"),
    "65 devices with counters": ([*_devices(64), a_device("t", consumesCounters=_consuming(1))], {}, "spec.devices"),
    "two devices of one name": ([*_devices(2), a_device("gpu-0")], {}, "spec.devices[2]"),
    "device name no label": ([a_device("GPU_0")], {}, "spec.devices[0].name"),
    "no driver": (ONE_DEVICE, {"driver": None}, "spec.driver"),
    "driver no subdomain": (ONE_DEVICE, {"driver": "a_b"}, "spec.driver"),
    "driver of 64 bytes": (ONE_DEVICE, {"driver": "a" * 64}, "spec.driver"),
    "no pool": (ONE_DEVICE, {"pool": None}, "spec.pool.name"),
    "pool name of 255 bytes": (
        ONE_DEVICE,
        {"pool": {"name": "a/" * 126 + "abc", "generation": 1, "resourceSliceCount": 1}},
        "spec.pool.name",
    ),
    "pool without slices": (ONE_DEVICE, {"pool": {"name": "a", "generation": 1, "resourceSliceCount": 0}}, None),
    "negative generation": (ONE_DEVICE, {"pool": {"name": "a", "generation": -1, "resourceSliceCount": 1}}, None),
    "no node selection": (ONE_DEVICE, {"nodeName": None}, "spec"),
    "two node selections": (ONE_DEVICE, {"allNodes": True}, "spec"),
    "empty node name": (ONE_DEVICE, {"nodeName": ""}, "spec.nodeName"),
    "allNodes false": (ONE_DEVICE, {"allNodes": False}, "spec.allNodes"),
    "string of 65 bytes": ([_attributes(a={"string": "é" * 32 + "e"})], {}, "spec.devices[0].attributes[a].string"),
    "version with leading zero": (
        [_attributes(a={"version": "535.104.05"})],
        {},
        "spec.devices[0].attributes[a].version",
    ),
    "attribute without value": ([_attributes(a={})], {}, "spec.devices[0].attributes[a]"),
    "attribute with two values": ([_attributes(a={"int": 1, "bool": True})], {}, "spec.devices[0].attributes[a]"),
    "attribute that is a list": ([_attributes(a={"strings": ["x"]})], {}, "spec.devices[0].attributes[a]"),
    "attribute key no identifier": ([_attributes(**{"a-b": {"int": 1}})], {}, "spec.devices[0].attributes"),
    "attribute key of 33 bytes": ([_attributes(**{"a" * 33: {"int": 1}})], {}, "spec.devices[0].attributes"),
    "attribute domain missing": ([_attributes(**{"/a": {"int": 1}})], {}, "spec.devices[0].attributes"),
    "33 attributes and capacities": (
        [
            a_device(
                attributes={f"a{i}": {"int": i} for i in range(31)}, capacity={"b": {"value": "1"}, "c": {"value": "1"}}
            )
        ],
        {},
        "spec.devices[0]",
    ),
    "policy without sharing": (
        [a_device(capacity={"memory": {"value": "1Gi", "requestPolicy": {"default": "1Gi"}}})],
        {},
        "spec.devices[0].capacity[memory].requestPolicy",
    ),
    "17 taints": ([a_device(taints=[TAINT | {"key": f"k{i}"} for i in range(17)])], {}, "spec.devices[0].taints"),
    "taint without effect": ([a_device(taints=[{"key": "k"}])], {}, "spec.devices[0].taints[0].effect"),
    "taint of unknown effect": (
        [a_device(taints=[TAINT | {"effect": "Maybe"}])],
        {},
        "spec.devices[0].taints[0].effect",
    ),
    "devices and counters": (_devices(1), {"sharedCounters": _sets(1)}, "spec"),
    "no devices and counters": ([], {"sharedCounters": _sets(1)}, "spec"),
    "9 counter sets": (None, {"sharedCounters": _sets(9)}, "spec.sharedCounters"),
    "33 counters": (None, {"sharedCounters": _sets(1, 33)}, "spec.sharedCounters[0].counters"),
    "no counters": (None, {"sharedCounters": _sets(1, 0)}, "spec.sharedCounters[0].counters"),
    "two sets of one name": (None, {"sharedCounters": _sets(1) * 2}, "spec.sharedCounters[1]"),
    "3 counter sets consumed": (
        [a_device(consumesCounters=_consuming(3))],
        {},
        "spec.devices[0].consumesCounters",
    ),
    "node selector without terms": (ONE_DEVICE, _NO_TERMS, "spec.nodeSelector.nodeSelectorTerms"),
    "node selector without a value": (ONE_DEVICE, _on(key="a", operator="In"), f"{_EXPRESSION}.values"),
    "node selector with a value too many": (
        ONE_DEVICE,
        _on(key="a", operator="Exists", values=["b"]),
        f"{_EXPRESSION}.values",
    ),
    "node selector of no operator": (ONE_DEVICE, _on(key="a", operator="Near"), f"{_EXPRESSION}.operator"),
    "node selector with a bad key": (ONE_DEVICE, _on(key="a b", operator="Exists"), f"{_EXPRESSION}.key"),
    "device of no node": (ONE_DEVICE, _PER_DEVICE, "spec.devices[0]"),
    "device with a bad node name": ([a_device(nodeName="A")], _PER_DEVICE, "spec.devices[0].nodeName"),
    "policy without a default": (_shared(validValues=["1Gi"]), {}, f"{_POLICY}.default"),
    "policy with a default that is none of its values": (
        _shared(default="3Gi", validValues=["1Gi", "2Gi"]),
        {},
        f"{_POLICY}.validValues",
    ),
    "policy with values out of order": (
        _shared(default="1Gi", validValues=["2Gi", "1Gi"]),
        {},
        f"{_POLICY}.validValues[1]",
    ),
    "policy with values and a range": (
        _shared(default="1Gi", validValues=["1Gi"], validRange={"min": "1Gi"}),
        {},
        _POLICY,
    ),
    "policy with a range beyond the capacity": (
        _shared(default="1Gi", validRange={"min": "1Gi", "max": "9Gi"}),
        {},
        f"{_POLICY}.validRange.max",
    ),
    "policy whose default is no step": (
        _shared(default="1536Mi", validRange={"min": "1Gi", "step": "1Gi"}),
        {},
        f"{_POLICY}.validRange.step",
    ),
    "device with a node of its own": ([a_device(nodeName="a")], {}, "spec.devices[0]"),
    "binding without failure": (
        [a_device(bindingConditions=["a"])],
        {},
        "spec.devices[0].bindingFailureConditions",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_slice_over_a_limit_is_refused(api, name, case):
    """Each limit of a slice, with the field that is named for it."""
    devices, spec, field = REFUSED[case]
    refused = api.post(SLICES, a_slice(name, devices, **spec))
    assert (refused.status, refused.body.get("reason")) == (422, "Invalid")
    details = refused.body["details"]
    assert (details["name"], details["group"], details["kind"]) == (name, "resource.k8s.io", "ResourceSlice")
    if field is not None:
        assert field in [cause["field"] for cause in details["causes"]]


@pytest.mark.parametrize(
    ("devices", "spec"),
    [
        (_devices(128), {}),
        ([*_devices(63), a_device("t", taints=[TAINT])], {}),
        (None, {"sharedCounters": _sets(8, 32)}),
        ([a_device(consumesCounters=_consuming(2))], {}),
        (ONE_DEVICE, {"driver": "a" * 63}),
        ([_attributes(**{f"{'d' * 63}/{'a' * 32}": {"string": "é" * 32}})], {}),
        ([a_device(attributes={f"a{i}": {"int": i} for i in range(32)})], {}),
        (None, {}),
        ([], {}),
        ([a_device(taints=[TAINT | {"effect": "None"}])], {}),
    ],
)
def test_slice_at_a_limit_is_taken(api, name, devices, spec):
    """The largest slices that the API takes."""
    taken = api.post(SLICES, a_slice(name, devices, **spec))
    assert taken.status == 201, taken.body


@pytest.mark.parametrize(
    "devices",
    ["x", [a_device(capacity=[])], [a_device(name=1)], [a_device(attributes={"a": "x"})], [a_device(allNodes="yes")]],
)
def test_value_of_another_type_is_a_bad_request(api, name, devices):
    """The object could not even be read."""
    refused = api.post(SLICES, a_slice(name, devices))
    assert (refused.status, refused.body["reason"]) == (400, "BadRequest")


def test_quantity_that_is_none_is_a_bad_request(api, name):
    """A quantity that cannot be read fails before any other check."""
    refused = api.post(SLICES, a_slice(name, [a_device(capacity={"memory": {"value": "much"}})]))
    assert (refused.status, refused.body["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("written", "stored"),
    [("1024Mi", "1Gi"), ("1000", "1k"), ("85899345920", "85899345920"), ("0.5Gi", "512Mi"), ("1e3", "1e3"), (5, "5")],
)
def test_quantity_is_stored_in_its_canonical_form(api, name, written, stored):
    """Who compares what it wrote with what came back has to know this."""
    made = api.post(SLICES, a_slice(name, [a_device(capacity={"memory": {"value": written}})]))
    assert made.body["spec"]["devices"][0]["capacity"]["memory"]["value"] == stored


@pytest.mark.parametrize("spec", [{"driver": "other.example.com"}, {"pool": {"name": "other"}}, {"nodeName": "other"}])
def test_driver_pool_and_node_of_a_slice_are_immutable(api, name, spec):
    """A slice cannot be moved."""
    api.post(SLICES, a_slice(name))
    refused = api.patch(f"{SLICES}/{name}", {"spec": spec})
    assert refused.status == 422
    assert "field is immutable" in refused.body["message"]


def test_taint_without_a_time_gets_one_on_every_write(api, name):
    """Leaving timeAdded out is a change of the spec, copying it is none."""
    made = api.post(SLICES, a_slice(name, [a_device(taints=[TAINT])]))
    taint = made.body["spec"]["devices"][0]["taints"][0]
    assert taint["timeAdded"].endswith("Z")
    path = f"{SLICES}/{name}"
    old = {**TAINT, "timeAdded": "2001-01-01T00:00:00Z"}
    kept = api.put(path, a_slice(name, [a_device(taints=[old])]))
    assert kept.body["spec"]["devices"][0]["taints"] == [old]
    assert api.put(path, a_slice(name, [a_device(taints=[old])])).version == kept.version
    rewritten = api.put(path, a_slice(name, [a_device(taints=[TAINT])]))
    assert rewritten.body["spec"]["devices"][0]["taints"][0]["timeAdded"] > old["timeAdded"]
    assert rewritten.meta["generation"] == kept.meta["generation"] + 1
