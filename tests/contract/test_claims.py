"""What the API asks of ResourceClaims, asked of our API server and of the real one."""

import pytest

from tests.support.api_objects import CLAIMS, a_claim, an_allocation


def _exactly(**fields):
    return {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", **fields}}]}


@pytest.fixture
def path(name):
    return f"{CLAIMS}/{name}"


CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "Ok",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def test_request_asks_for_one_device_unless_it_says_otherwise(api, name):
    """Mode and count are filled in."""
    made = api.post(CLAIMS, a_claim(name, **_exactly(tolerations=[{"key": "k", "value": "v"}])))
    wish = made.body["spec"]["devices"]["requests"][0]["exactly"]
    assert (wish["allocationMode"], wish["count"]) == ("ExactCount", 1)
    assert wish["tolerations"] == [{"key": "k", "operator": "Equal", "value": "v"}]


@pytest.mark.parametrize(
    ("devices", "field"),
    [
        ({"requests": [{"name": "gpu"}]}, "spec.devices.requests[0]"),
        ({"requests": [{"name": "gpu", "exactly": {}}]}, "spec.devices.requests[0].exactly.deviceClassName"),
        ({"requests": _exactly()["requests"] * 2}, "spec.devices.requests[1]"),
        (_exactly(count=-1), "spec.devices.requests[0].exactly.count"),
        (_exactly(allocationMode="All", count=1), "spec.devices.requests[0].exactly.count"),
        (_exactly(allocationMode="Some"), "spec.devices.requests[0].exactly.allocationMode"),
        ({"constraints": [{}]}, "spec.devices.constraints[0]"),
        ({"constraints": [{"matchAttribute": "bare"}]}, "spec.devices.constraints[0].matchAttribute"),
        (
            {"constraints": [{"requests": ["other"], "matchAttribute": "a.b/c"}]},
            "spec.devices.constraints[0].requests[0]",
        ),
        (
            {"constraints": [{"requests": ["GPU"], "matchAttribute": "a.b/c"}]},
            "spec.devices.constraints[0].requests[0]",
        ),
        ({"constraints": [{"matchAttribute": "A.b/c"}]}, "spec.devices.constraints[0].matchAttribute"),
        ({"config": [{}]}, "spec.devices.config[0].opaque"),
        ({"config": [{"opaque": {"driver": "a.b", "parameters": [1]}}]}, "spec.devices.config[0].opaque.parameters"),
        (
            {"config": [{"opaque": {"driver": "a.b", "parameters": {"a": "x" * 10240}}}]},
            "spec.devices.config[0].opaque.parameters",
        ),
    ],
)
def test_claim_that_breaks_a_rule_is_refused(api, name, devices, field):
    """Each rule, with the field that is named for it."""
    refused = api.post(CLAIMS, a_claim(name, **devices))
    assert (refused.status, refused.body["reason"]) == (422, "Invalid")
    assert field in [cause["field"] for cause in refused.body["details"]["causes"]]


def test_spec_of_a_claim_is_immutable(api, name, path):
    """Labels may change, wishes may not."""
    api.post(CLAIMS, a_claim(name))
    assert api.patch(path, {"metadata": {"labels": {"a": "b"}}}).status == 200
    refused = api.patch(path, {"spec": {"devices": {"requests": []}}})
    assert (refused.status, refused.body["details"]["causes"][0]["field"]) == (422, "spec")


def test_status_is_written_through_its_own_path_only(api, name, path):
    """The main path ignores status, the status path ignores all else."""
    made = api.post(CLAIMS, a_claim(name) | {"status": {"allocation": an_allocation()}})
    assert not made.body["status"]
    assert not api.patch(path, {"status": {"allocation": an_allocation()}}).body["status"]
    allocated = api.patch(
        f"{path}/status", {"metadata": {"labels": {"a": "b"}}, "status": {"allocation": an_allocation()}}
    )
    assert allocated.body["status"]["allocation"] == an_allocation()
    assert "labels" not in allocated.meta
    assert api.get(f"{path}/status").body == allocated.body
    assert "generation" not in allocated.meta


def test_allocation_cannot_be_changed_but_cleared(api, name, path):
    """An allocation stands until it is taken away whole, with what was said of its devices."""
    api.post(CLAIMS, a_claim(name))
    api.patch(f"{path}/status", {"status": {"allocation": an_allocation()}})
    refused = api.patch(f"{path}/status", {"status": {"allocation": an_allocation(device="gpu-1")}})
    assert (refused.status, refused.body["details"]["causes"][0]["field"]) == (422, "status.allocation")
    said = [{"driver": "gpu.example.com", "pool": "node-a", "device": "gpu-0", "data": {"a": 1}}]
    assert api.patch(f"{path}/status", {"status": {"devices": said}}).body["status"]["devices"][0]["data"] == {"a": 1}
    cleared = api.patch(f"{path}/status", {"status": {"allocation": None}})
    assert cleared.body["status"] == {}


def test_status_of_a_device_that_is_not_allocated_is_refused(api, name, path):
    """A driver speaks of allocated devices only."""
    api.post(CLAIMS, a_claim(name))
    api.patch(f"{path}/status", {"status": {"allocation": an_allocation()}})
    other = a_claim(name) | {
        "status": {"devices": [{"driver": "gpu.example.com", "pool": "node-a", "device": "gpu-9"}]}
    }
    refused = api.apply(f"{path}/status", other, "driver")
    assert (refused.status, refused.body["details"]["causes"][0]["field"]) == (422, "status.devices[0]")


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ({"conditions": [{**CONDITION, "status": "Maybe"}]}, "conditions[0].status"),
        ({"conditions": [{**CONDITION, "reason": "not a word"}]}, "conditions[0].reason"),
        ({"conditions": [CONDITION, CONDITION]}, "conditions[1]"),
        ({"data": [1]}, "data"),
    ],
)
def test_status_of_a_device_that_breaks_a_rule_is_refused(api, name, path, status, field):
    """Each rule, with the field that is named for it."""
    api.post(CLAIMS, a_claim(name))
    api.patch(f"{path}/status", {"status": {"allocation": an_allocation()}})
    device = {"driver": "gpu.example.com", "pool": "node-a", "device": "gpu-0", **status}
    refused = api.patch(f"{path}/status", {"status": {"devices": [device]}})
    assert refused.status == 422
    assert f"status.devices[0].{field}" in [cause["field"] for cause in refused.body["details"]["causes"]]


def test_reservation_needs_an_allocation(api, name, path):
    """Nobody reserves what is not allocated."""
    api.post(CLAIMS, a_claim(name))
    consumer = {"resource": "pods", "name": "a", "uid": "u"}
    refused = api.patch(f"{path}/status", {"status": {"reservedFor": [consumer]}})
    assert (refused.status, refused.body["details"]["causes"][0]["field"]) == (422, "status.reservedFor")


def test_two_drivers_apply_the_status_of_their_own_devices(api, name, path):
    """Entries of status.devices are owned one by one."""
    requests = [{"name": n, "exactly": {"deviceClassName": "any"}} for n in ("gpu", "nic")]
    api.post(CLAIMS, a_claim(name, requests=requests))
    gpu = {"driver": "gpu.example.com", "pool": "node-a", "device": "gpu-0"}
    nic = {"driver": "nic.example.com", "pool": "node-a", "device": "nic-0"}
    results = [{"request": "gpu", **gpu}, {"request": "nic", **nic}]
    api.patch(f"{path}/status", {"status": {"allocation": {"devices": {"results": results}}}})
    claim = a_claim(name, requests=requests)
    api.apply(f"{path}/status", claim | {"status": {"devices": [{**gpu, "data": {"a": 1}}]}}, "one")
    both = api.apply(f"{path}/status", claim | {"status": {"devices": [{**nic, "data": {"b": 1}}]}}, "two")
    assert [d["device"] for d in both.body["status"]["devices"]] == ["gpu-0", "nic-0"]
    left = api.apply(f"{path}/status", claim | {"status": {"devices": []}}, "one")
    assert [d["device"] for d in left.body["status"]["devices"]] == ["nic-0"]
