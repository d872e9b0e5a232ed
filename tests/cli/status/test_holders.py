"""Which pod and container has which device."""

from api.claims import PodRef
from cli.status.facts import Claim
from cli.status.holders import holds_of
from cli.status.reading import read_pod, read_status_claim
from tests.support.held_devices import DRIVER, a_held_claim, a_pod, a_result

POOL = f"node-a/{DRIVER}"


def told(claims, pods):
    """device → (claim, pod, state, containers) of its holders, and the same of those that only look."""
    read = {(pod.namespace, pod.name): pod for pod in map(read_pod, pods)}
    holds = holds_of([read_status_claim(claim, DRIVER) for claim in claims], read)
    return {
        device: tuple(
            [(hold.claim, pod.name, pod.state, pod.containers) for hold in some for pod in hold.pods] for some in both
        )
        for (_, device), both in holds.items()
    }


def test_the_container_that_names_the_claim_has_the_device():
    """And no other container of the pod."""
    claims = [a_held_claim("train", a_result("gpu-1"), pods=("p",))]
    pods = [a_pod("p", {"mine": "train"}, containers={"main": [{"name": "mine"}], "sidecar": []})]
    assert told(claims, pods) == {"gpu-1": ([("train", "p", "Running", ("main",))], [])}


def test_a_request_narrows_what_a_container_gets():
    """Of two requests each container has its own; a chosen alternative counts as its main request (Case A3)."""
    claims = [
        a_held_claim("two", a_result("gpu-1", "left"), a_result("gpu-2", "right/large"), pods=("p",), requests=("x",))
    ]
    containers = {
        "one": [{"name": "c", "request": "left"}],
        "other": [{"name": "c", "request": "right"}],
        "both": [{"name": "c"}],
    }
    assert told(claims, [a_pod("p", {"c": "two"}, containers=containers)]) == {
        "gpu-1": ([("two", "p", "Running", ("one", "both"))], []),
        "gpu-2": ([("two", "p", "Running", ("other", "both"))], []),
    }


def test_a_claim_made_from_a_template_is_found_by_the_pods_status():
    """The pod's spec does not name it."""
    pod = a_pod(
        "p",
        containers={"main": [{"name": "made"}]},
        spec={"resourceClaims": [{"name": "made", "resourceClaimTemplateName": "whole"}]},
        resourceClaimStatuses=[{"name": "made", "resourceClaimName": "p-made-x7"}],
    )
    claims = [a_held_claim("p-made-x7", a_result("gpu-1"), pods=("p",))]
    assert told(claims, [pod]) == {"gpu-1": ([("p-made-x7", "p", "Running", ("main",))], [])}


def test_the_claim_for_extended_resources_is_found_by_the_pods_status():
    """`nvidia.com/gpu: 1`: each container gets what its own request was given."""
    mappings = [
        {"containerName": "a", "resourceName": "nvidia.com/gpu", "requestName": "container-0-request-0"},
        {"containerName": "b", "resourceName": "nvidia.com/gpu", "requestName": "container-1-request-0"},
    ]
    pod = a_pod(
        "p",
        containers={"a": [], "b": []},
        extendedResourceClaimStatus={"resourceClaimName": "p-extended", "requestMappings": mappings},
    )
    results = [a_result(f"gpu-{n}", f"container-{n}-request-0") for n in range(2)]
    assert told([a_held_claim("p-extended", *results, pods=("p",))], [pod]) == {
        "gpu-0": ([("p-extended", "p", "Running", ("a",))], []),
        "gpu-1": ([("p-extended", "p", "Running", ("b",))], []),
    }


def test_admin_access_holds_nothing():
    """A monitor looks at a device that another pod has (Case A8)."""
    claims = [
        a_held_claim("train", a_result("gpu-1"), pods=("p",)),
        a_held_claim("watch", a_result("gpu-1", adminAccess=True), pods=("monitor",), namespace="monitoring"),
    ]
    pods = [a_pod("p", {"c": "train"}), a_pod("monitor", {"c": "watch"}, namespace="monitoring")]
    assert told(claims, pods) == {
        "gpu-1": ([("train", "p", "Running", ("main",))], [("watch", "monitor", "Running", ("main",))])
    }


def test_a_pod_that_is_gone_still_holds_its_device():
    """Also where another pod of its name has come: a UID tells them apart."""
    claims = [a_held_claim("left", a_result("gpu-1"), pods=("p", "q"))]
    again = a_pod("q", {"c": "left"})
    again["metadata"]["uid"] = "uid-of-another"
    assert told(claims, [again]) == {"gpu-1": ([("left", "p", "Gone", ()), ("left", "q", "Gone", ())], [])}


def test_a_pod_of_the_same_name_in_another_namespace_is_somebody_else():
    """Claims belong to their namespace."""
    claims = [a_held_claim("c", a_result("gpu-1"), pods=("p",))]
    assert told(claims, [a_pod("p", {"x": "c"}, namespace="team-b")]) == {"gpu-1": ([("c", "p", "Gone", ())], [])}


def test_a_claim_reserved_for_no_pod_holds_its_device():
    """Allocated is taken; other drivers' results are none of our business."""
    claim = Claim("team-a", "idle", "u", results=(), pods=(PodRef("p", "u"),), allocated=True)
    assert holds_of([claim], {}) == {}
    idle = a_held_claim("idle", a_result("gpu-1"), {**a_result("nic-1"), "driver": "nic.example.com"})
    ((device, (holders, watchers)),) = holds_of([read_status_claim(idle, DRIVER)], {}).items()
    assert (device, [hold.claim for hold in holders], watchers) == ((POOL, "gpu-1"), ["idle"], [])


def test_two_pods_share_a_claim():
    """In the order of their names."""
    claims = [a_held_claim("shared", a_result("gpu-1"), pods=("second", "first"))]
    pods = [a_pod(name, {"c": "shared"}) for name in ("first", "second")]
    pods[1]["metadata"]["deletionTimestamp"] = "2026-12-01T00:00:00Z"
    assert told(claims, pods) == {
        "gpu-1": (
            [("shared", "first", "Running", ("main",)), ("shared", "second", "Terminating", ("main",))],
            [],
        )
    }
