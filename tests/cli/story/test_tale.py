"""What the demo asks for, and when it takes something for settled."""

from cli.story import asks
from cli.story.holdings import Device
from cli.story.tale import REST_SECONDS, Rest


def test_something_rests_when_it_has_been_the_same_for_a_while() -> None:
    """Each change begins the wait anew; None is too early to ask."""
    seen = iter([None, None, "a", "a", "b", "b", "b"])
    half = REST_SECONDS * 0.6
    times = iter([0.0, 9.0, 10.0, 10 + half, 10 + 2 * half, 10 + 3 * half, 10 + 4 * half])
    rest = Rest(lambda: next(seen), clock=lambda: next(times))
    assert [rest() for _ in range(7)] == [False, False, False, False, False, False, True]


def test_replicas_are_the_pods_of_the_deployment() -> None:
    """As many as asked for, each of the template, and none of them a Deployment."""
    ask = asks.replicas(3)
    assert ask.pods == ("claim-template-1", "claim-template-2", "claim-template-3")
    kinds = [obj["kind"] for obj in ask.objects]
    assert kinds == ["ResourceClaimTemplate", "Pod", "Pod", "Pod"]
    first, second = ask.objects[1]["spec"], ask.objects[2]["spec"]
    assert first == second
    assert first is not second
    assert first["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": "whole-gpu"}]


def test_examples_are_applied_as_they_are() -> None:
    """The files that a reader finds in examples/."""
    assert asks.one_gpu().pods == ("one-gpu",)
    assert asks.shared_claim().pods == ("shared-claim-a", "shared-claim-b")
    assert asks.near_pair().pods == ("two-gpus-one-numa-node",)
    assert asks.one_gpu().source == "examples/one-gpu"


def test_two_free_devices_of_one_numa_node_are_a_near_pair() -> None:
    """Devices that do not know their node are near nobody."""
    assert asks.has_near_pair([Device("p", "a", numa=0), Device("p", "b", numa=1), Device("p", "c", numa=1)])
    assert not asks.has_near_pair([Device("p", "a", numa=0), Device("p", "b", numa=1)])
    assert not asks.has_near_pair([Device("p", "a"), Device("p", "b")])
