"""The status that the controller writes."""

import pytest

from controller.conditions import MESSAGE_MAX, status_of
from controller.decide import Decision
from controller.liveness import Alive, Dead, Unsure
from tests.support.gpus import an_inventory

NOW, LATER = "2026-11-30T10:00:00Z", "2026-11-30T11:00:00Z"


def a_decision(**changes):
    fields = {
        "published": True,
        "reason": "Published",
        "message": "2 GPUs published",
        "health": Alive(1, 1),
        "devices": 2,
    }
    return Decision(**{"slices": (), **fields, **changes})


def status(obj, decision, now=NOW, dropped=()):
    return status_of(obj, decision, slices=1, left_out=0, dropped=dropped, now=now)


def test_what_is_said_already_is_not_written():
    """Only when something changed."""
    obj = an_inventory()
    first = status(obj, a_decision())
    assert first is not None
    obj["status"] |= first["status"]
    assert status(obj, a_decision(), now=LATER) is None


def test_the_time_is_that_of_the_last_change_of_status():
    """Another message alone does not begin a new time."""
    obj = an_inventory()
    obj["status"] |= status(obj, a_decision())["status"]
    again = status(obj, a_decision(message="3 GPUs published", devices=3), now=LATER)
    assert [item["lastTransitionTime"] for item in again["status"]["conditions"]] == [NOW, NOW]
    other = status(obj, a_decision(published=False, reason="NoLiveInstance", health=Dead("silent")), now=LATER)
    assert [item["lastTransitionTime"] for item in other["status"]["conditions"]] == [LATER, LATER]
    assert [item["status"] for item in other["status"]["conditions"]] == ["False", "False"]


def test_while_nothing_is_known_nothing_is_said():
    """A controller that has just started leaves the word of the one before."""
    assert status(an_inventory(), a_decision(slices=None, health=Unsure(1))) is None


def test_an_unsure_moment_keeps_what_was_said_of_registration():
    """Applying without it would take the condition away."""
    obj = an_inventory()
    obj["status"] |= status(obj, a_decision())["status"]
    kept = status(obj, a_decision(published=False, reason="NoDevices", message="no GPU", health=Unsure(1)), now=LATER)
    assert [(item["type"], item["status"]) for item in kept["status"]["conditions"]] == [
        ("Published", "False"),
        ("Registered", "True"),
    ]


def test_dropped_fields_are_named():
    """A reader sees which gate to look for."""
    said = status(an_inventory(), a_decision(), dropped=("devices[].taints",))
    assert said["status"]["conditions"][0]["reason"] == "FieldsDropped"
    assert said["status"]["conditions"][0]["message"] == (
        "2 GPUs published; the API server dropped devices[].taints: a feature gate is off there"
    )


def test_long_messages_are_cut():
    """A hundred devices left out are no page of text."""
    said = status(an_inventory(), a_decision(message="x" * 5000))
    assert len(said["status"]["conditions"][0]["message"]) == MESSAGE_MAX


@pytest.mark.parametrize("stored", ["x", {"conditions": "x"}, {"conditions": [None, 5, {}, {"type": 5}]}])
def test_what_no_schema_would_let_in_is_written_over(stored):
    """Where the definition's schema is missing or was changed."""
    written = status({**an_inventory(), "status": stored}, a_decision())["status"]
    assert [item["type"] for item in written["conditions"]] == ["Published", "Registered"]
