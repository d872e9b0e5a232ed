"""Keys that wait for their turn."""

from cli.sandbox.duequeue import DueQueue
from tests.support.kubelet_world import Clock


def _queue():
    clock = Clock()
    return clock, DueQueue(clock, first_seconds=1.0, limit_seconds=3.0)


def _pause(clock, queue, key):
    """How long after a failure the key is due: it is the only one, and the clock stands at that time when it comes."""
    queue.failed(key)
    (due,) = queue._due.values()
    queue._due.clear()
    return due - clock.time


def test_key_that_is_added_twice_comes_once():
    """In the order in which they became due."""
    clock, queue = _queue()
    queue.add("ab")
    clock.time += 1.0
    queue.add("a")
    assert (queue.take(), queue.take()) == ("b", "a")
    queue.close()
    assert queue.take() is None


def test_pause_doubles_with_each_failure_up_to_a_limit():
    """And begins anew after a success."""
    clock, queue = _queue()
    assert [_pause(clock, queue, "a") for _ in range(4)] == [1.0, 2.0, 3.0, 3.0]
    queue.done("a")
    assert _pause(clock, queue, "a") == 1.0


def test_change_does_not_wait_for_the_pause():
    """What failed is tried at once when there is news."""
    _, queue = _queue()
    queue.failed("a")
    queue.add("a")
    assert queue.take() == "a"
