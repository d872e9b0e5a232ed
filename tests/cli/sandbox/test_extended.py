"""The claim for extended resources: which classes, which requests, which container uses which."""

from cli.sandbox import extended
from tests.support.allocation import a_class, a_node

GPU = "nvidia.com/gpu"


def a_pod(*containers, inits=()):
    meta = {"name": "pod", "namespace": "team-a", "uid": "u"}
    return {"metadata": meta, "spec": {"containers": list(containers), "initContainers": list(inits)}}


def wants(name, amount, **more):
    return {"name": name, "resources": {"limits": {GPU: str(amount), "cpu": "1"}}, **more}


def asked(pod):
    """Counts by request, and the mappings as (container, request)."""
    special = extended.special(pod, frozenset({GPU}), {GPU: "gpu"})
    counts = {r["name"]: r["exactly"]["count"] for r in special.claim["spec"]["devices"]["requests"]}
    return counts, [(m["containerName"], m["requestName"]) for m in special.mappings]


def test_each_container_has_a_request_of_its_own():
    """Requests are named by the container's place and the resource's place among those of the container."""
    counts, mappings = asked(a_pod(wants("a", 1), {"name": "plain"}, wants("b", 2)))
    assert counts == {"container-0-request-1": 1, "container-2-request-1": 2}
    assert mappings == [("a", "container-0-request-1"), ("b", "container-2-request-1")]


def test_init_container_uses_what_later_containers_have():
    """A container that ends before the others start takes their devices, and asks only for what is more."""
    counts, mappings = asked(a_pod(wants("main", 1), inits=[wants("small", 1), wants("large", 3)]))
    assert counts == {"container-1-request-1": 2, "container-2-request-1": 1}
    assert mappings == [
        ("main", "container-2-request-1"),
        ("small", "container-2-request-1"),
        ("large", "container-2-request-1"),
        ("large", "container-1-request-1"),
    ]


def test_largest_of_the_init_containers_serves_all_of_them():
    """Init containers run one after the other, so one request is made for them."""
    counts, mappings = asked(a_pod({"name": "main"}, inits=[wants("first", 1), wants("second", 2)]))
    assert counts == {"container-1-request-1": 2}
    assert mappings == [("first", "container-1-request-1"), ("second", "container-1-request-1")]


def test_sidecar_keeps_its_devices():
    """An init container that goes on running shares with nobody after it."""
    counts, _ = asked(a_pod(wants("main", 1), inits=[wants("sidecar", 1, restartPolicy="Always")]))
    assert counts == {"container-0-request-1": 1, "container-1-request-1": 1}


def test_youngest_class_of_a_name_counts():
    """Two classes under one name: the younger one, and of two as old the first by name."""
    old, new, same = (
        a_class("a", extendedResourceName=GPU),
        a_class("b", extendedResourceName=GPU),
        a_class("c", extendedResourceName=GPU),
    )
    old["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    new["metadata"]["creationTimestamp"] = same["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    found = extended.classes_by_resource([old, same, new])
    assert found[GPU] == "b"
    assert found["deviceclass.resource.kubernetes.io/a"] == "a"


def test_device_plugin_of_the_node_goes_before_devices():
    """Where a node has the resource as allocatable, no claim is made for it."""
    node = a_node()
    assert extended.by_devices([GPU, "cpu"], node, {GPU: "gpu"}) == {GPU}
    node["status"] = {"allocatable": {GPU: "8"}}
    assert extended.by_devices([GPU, "cpu"], node, {GPU: "gpu"}) == frozenset()
