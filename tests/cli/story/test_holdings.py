"""Who has which device, read from objects as the API server has them."""

from cli.story.holdings import devices_of, holdings, is_running, results, why_waiting

DRIVER = "gpu.lanewise.dev"


def a_claim(name: str, *devices: str, request: str = "gpu") -> dict:
    found = [{"request": request, "driver": DRIVER, "pool": "p", "device": device} for device in devices]
    status = {"allocation": {"devices": {"results": found}}} if devices else {}
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "status": status}


def a_pod(name: str, claims: list[dict], containers: dict[str, list[dict]], **status: object) -> dict:
    return {
        "metadata": {"name": name},
        "spec": {
            "resourceClaims": claims,
            "containers": [{"name": name, "resources": {"claims": uses}} for name, uses in containers.items()],
        },
        "status": status,
    }


def test_containers_that_share_a_claim_each_hold_its_device() -> None:
    """A container that names no claim holds nothing."""
    pod = a_pod(
        "a", [{"name": "gpu", "resourceClaimName": "c"}], {"l": [{"name": "gpu"}], "r": [{"name": "gpu"}], "x": []}
    )
    held = holdings([pod], [a_claim("c", "gpu-1")])
    assert [(h.container, h.claim, h.claim_uid, h.device) for h in held] == [
        ("l", "c", "uid-c", "gpu-1"),
        ("r", "c", "uid-c", "gpu-1"),
    ]


def test_claims_made_from_templates_are_found_by_the_pods_status() -> None:
    """Until they are made, there is nothing."""
    entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
    made = [{"name": "gpu", "resourceClaimName": "a-gpu-x"}]
    claims = [a_claim("a-gpu-x", "gpu-1", "gpu-2")]
    assert holdings([a_pod("a", [entry], {"m": [{"name": "gpu"}]})], claims) == ()
    held = holdings([a_pod("a", [entry], {"m": [{"name": "gpu"}]}, resourceClaimStatuses=made)], claims)
    assert [h.device for h in held] == ["gpu-1", "gpu-2"]


def test_a_container_that_names_a_request_holds_only_its_devices() -> None:
    """Subrequests (`gpu/large`) belong to their request."""
    claim = a_claim("c", "gpu-1", request="gpu/large")
    claim["status"]["allocation"]["devices"]["results"] += results(a_claim("c", "gpu-2", request="other"))
    uses = [{"name": "gpu", "request": "gpu"}]
    held = holdings([a_pod("a", [{"name": "gpu", "resourceClaimName": "c"}], {"m": uses})], [claim])
    assert [h.device for h in held] == ["gpu-1"]


def test_devices_of_other_drivers_are_not_ours() -> None:
    """Nor are their slices."""
    claim = a_claim("c", "gpu-1")
    claim["status"]["allocation"]["devices"]["results"][0]["driver"] = "nic.example.com"
    assert results(claim) == []
    assert results(None) == []
    spec = {"driver": "nic.example.com", "pool": {"name": "p"}, "devices": [{"name": "nic"}]}
    assert devices_of([{"spec": spec}]) == ()


def test_devices_tell_what_they_know() -> None:
    """And nothing where they know nothing; taints that keep nobody away are left out."""
    attributes = {"productName": {"string": "H100"}, "resource.kubernetes.io/numaNode": {"int": 1}}
    taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "None"}]
    device = {"name": "gpu-1", "attributes": attributes, "capacity": {"memory": {"value": "80Gi"}}, "taints": taints}
    spec = {"driver": DRIVER, "pool": {"name": "p"}, "devices": [device, {"name": "gpu-2"}]}
    full, bare = devices_of([{"spec": spec}])
    assert (full.product, full.numa, full.memory, full.taints) == ("H100", 1, "80Gi", ("a=:NoSchedule",))
    assert (bare.product, bare.numa, bare.memory, bare.taints) == (None, None, None, ())


def test_a_pod_waits_when_the_scheduler_says_so() -> None:
    """In its words; a pod it has not looked at yet neither waits nor runs."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no device"}
    waiting = why_waiting(a_pod("a", [], {}, conditions=[condition]))
    assert waiting is not None
    assert (waiting.pod, waiting.why) == ("a", "no device")
    assert why_waiting(a_pod("a", [], {})) is None
    assert not is_running(a_pod("a", [], {}))
    assert is_running(a_pod("a", [], {}, phase="Running"))
