"""One user of NVML at a time, discovery first, and an end that is an end."""

import threading

import pytest

from api.refusals import Refused
from kubeletplugin.health.turns import Turns

SECONDS = 10.0


def in_a_thread(act):
    """The thread, started; it is joined by the test."""
    thread = threading.Thread(target=act)
    thread.start()
    return thread


def test_the_watch_waits_for_discovery_to_end():
    """It comes in the middle of discovery's turn, and begins with its end."""
    turns, order = Turns(), []

    def watch():
        with turns.of_the_watch():
            order.append("watch")

    with turns.of_discovery():
        thread = in_a_thread(watch)
        thread.join(0.05)
        assert order == []
        order.append("discovery")
    thread.join(SECONDS)
    assert order == ["discovery", "watch"]


def test_discovery_asks_the_watch_to_leave_and_comes_before_its_next_turn():
    """A rest ends at once."""
    turns, order, resting = Turns(), [], threading.Event()

    def watch():
        for _ in range(2):
            with turns.of_the_watch():
                order.append("watch")
                resting.set()
                while not turns.leaving():
                    turns.rest(SECONDS)

    thread = in_a_thread(watch)
    assert resting.wait(SECONDS)
    with turns.of_discovery():
        order.append("discovery")
    turns.end()
    thread.join(SECONDS)
    assert order[:2] == ["watch", "discovery"]
    assert not thread.is_alive()


def test_a_watch_that_does_not_leave_is_not_waited_for_without_end():
    """And once it has left, discovery has its turn as always."""
    turns = Turns(patience_seconds=0.01)
    with turns.of_the_watch(), pytest.raises(Refused, match="has not answered"), turns.of_discovery():
        pass
    with turns.of_discovery():
        assert not turns.leaving()


def test_after_the_end_the_watch_has_no_turn():
    """Also where it was waiting for one."""
    turns = Turns()
    with turns.of_discovery():
        left = threading.Event()

        def watch():
            with turns.of_the_watch():
                assert turns.leaving()
            left.set()

        thread = in_a_thread(watch)
        turns.end()
        assert left.wait(SECONDS)
        thread.join(SECONDS)
    turns.rest(SECONDS)  # returns at once
    assert turns.ended()


def test_a_poke_before_a_rest_is_not_lost():
    """There are other GPUs: what came before the rest ends it."""
    turns = Turns()
    turns.poke()
    turns.rest(SECONDS)
    thread = in_a_thread(lambda: turns.rest(SECONDS))
    turns.poke()
    thread.join(SECONDS)
    assert not thread.is_alive()
