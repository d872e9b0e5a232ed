"""Reading what the API server has of a claim."""

import pytest

from api.claims import Config, PodRef, Result, read_claim
from api.names import ClaimRef
from api.refusals import Refused

RESULT = {
    "request": "gpu/big",
    "driver": "gpu.lanewise.dev",
    "pool": "node-a/gpu.lanewise.dev",
    "device": "gpu-53-00-0",
}
OPAQUE = {
    "source": "FromClass",
    "requests": ["gpu"],
    "opaque": {"driver": "gpu.lanewise.dev", "parameters": {"kind": "A"}},
}


def a_claim(**devices):
    return {
        "metadata": {"namespace": "team-a", "name": "train", "uid": "u1"},
        "status": {"allocation": {"devices": devices}},
    }


def test_what_a_driver_needs_of_a_claim():
    """Results of all drivers, and opaque configurations."""
    claim = read_claim(a_claim(results=[RESULT, {**RESULT, "driver": "nic.example.com"}], config=[OPAQUE]))
    assert claim.ref == ClaimRef("team-a", "train", "u1")
    assert claim.allocated
    assert claim.results_of("gpu.lanewise.dev") == (Result(**RESULT),)
    assert claim.configs == (Config(("gpu",), "gpu.lanewise.dev", {"kind": "A"}, from_class=True),)


def test_the_pods_that_may_use_it():
    """Those that it is reserved for; a whole PodGroup, or what others invent, is no pod."""
    obj = a_claim()
    obj["status"]["reservedFor"] = [
        {"resource": "pods", "name": "train-0", "uid": "u-0"},
        {"apiGroup": "", "resource": "pods", "name": "train-1", "uid": "u-1"},
        {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "train", "uid": "u-2"},
    ]
    assert read_claim(obj).pods == (PodRef("train-0", "u-0"), PodRef("train-1", "u-1"))
    assert read_claim(a_claim()).pods == ()


@pytest.mark.parametrize(
    "obj",
    [
        {},
        {"kind": "Status", "metadata": {}},
        {"metadata": None},
        {"metadata": {"namespace": "team-a", "name": "train", "uid": 5}},
        {**a_claim(), "status": "x"},
        {**a_claim(), "status": {"allocation": {"devices": "x"}}},
        a_claim(results=5),
        a_claim(results="x"),
        a_claim(results=[None]),
        a_claim(results=[{}]),
        a_claim(results=[{**RESULT, "device": None}]),
        a_claim(results=[{**RESULT, "pool": 5}]),
        a_claim(results=[{**RESULT, "request": None}]),
        a_claim(results=[{**RESULT, "shareID": 5}]),
        a_claim(config=[None]),
        a_claim(config=[{"opaque": None}]),
        a_claim(config=[{"opaque": {}}]),
        a_claim(config=[{"opaque": {"driver": "gpu.lanewise.dev"}, "requests": 5}]),
    ],
)
def test_what_is_no_claim_is_refused_in_words(obj):
    """A proxy, or a server that did not validate: an answer for the user, no traceback."""
    with pytest.raises(Refused, match="is no ResourceClaim as Kubernetes has them"):
        read_claim(obj)
