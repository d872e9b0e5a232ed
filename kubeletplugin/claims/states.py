"""Which state of a claim follows which.

A claim's state is not stored: it is what the traces on disk say, so that a crash at any moment leaves a state of this
table. Nothing here touches the disk: `kubeletplugin.claims.acts` looks and carries out. A repeated call is a cell, not an
`if`; a pair that has no cell is a mistake of ours and changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from kubeletplugin.claims.record import Record


class State(Enum):
    """What the traces of one claim amount to."""

    ABSENT = "absent"
    """Nothing, or only the mark that it was released."""
    LEFTOVERS = "leftovers"
    """Holds or a CDI file without a record: a prepare that was cut off, or whose record somebody removed."""
    RECORDED = "recorded"
    """A record, but not exactly its holds: links are not durable, a power loss takes them."""
    HELD = "held"
    """Record and holds; the CDI file is missing or says something else."""
    READY = "ready"
    """Record, holds and CDI file agree."""
    OUTDATED = "outdated"
    """The record was written before a reboot, or for a card that has been replaced since (Case G1)."""
    RELEASING = "releasing"
    """Unprepare has begun and was cut off."""
    DAMAGED = "damaged"
    """A record that cannot be read (Case G7)."""
    SET_ASIDE = "set aside"
    """A damaged record lies in quarantine; what the claim holds stays, for its containers may run."""
    NEWER = "newer"
    """A record in a format that only a later version of the plugin understands."""


class Event(Enum):
    """What happens to a claim."""

    PREPARE = "prepare"
    UNPREPARE = "unprepare"
    RECOVER = "recover"
    """At start and by timer."""
    ABANDON = "abandon"
    """The API has not known the claim for so long that we unprepare it unasked."""


class Step(Enum):
    """What can be done; each may be repeated."""

    TAKE_HOLDS = "take holds"
    """So that they are exactly those of the record: missing ones made, others dropped."""
    FORGET_RELEASE = "forget release"
    WRITE_RECORD = "write record"
    WRITE_CDI = "write CDI file"
    MARK_RELEASED = "mark released"
    REMOVE_CDI = "remove CDI file"
    DROP_HOLDS = "drop holds"
    REMOVE_RECORD = "remove record"
    SET_RECORD_ASIDE = "set record aside"


@dataclass(frozen=True, slots=True)
class Cell:
    """What an event leads to."""

    steps: tuple[Step, ...]
    """In this order. Cut off after any of them, the traces are again a state of the table."""
    then: frozenset[State]
    """Where it ends when nothing goes wrong."""


class NoSuchTransition(AssertionError):  # noqa: N818  # named for what there is none of
    """An event that cannot happen in this state was asked for."""


_BUILD = (Step.TAKE_HOLDS, Step.FORGET_RELEASE, Step.WRITE_RECORD, Step.WRITE_CDI)
"""Holds before the record: whoever is recorded has been let in, so no two records ever want one device. The record before
the CDI file: what a runtime can see can be cleaned up by what we know."""
_CLEAR = (Step.REMOVE_CDI, Step.REMOVE_RECORD, Step.DROP_HOLDS)
"""The opposite order, so that a record that the disk does not let go keeps its devices from others until it does. A hold
names its claim: whatever interrupts, it is known what is left to do."""
_RELEASE = (Step.MARK_RELEASED, *_CLEAR)

_READY = frozenset({State.READY})
_ABSENT = frozenset({State.ABSENT})
_KEPT = frozenset({State.SET_ASIDE, State.ABSENT})

TABLE: Mapping[tuple[State, Event], Cell] = {
    (State.ABSENT, Event.PREPARE): Cell(_BUILD, _READY),
    (State.LEFTOVERS, Event.PREPARE): Cell((Step.REMOVE_CDI, Step.DROP_HOLDS, *_BUILD), _READY),
    (State.RECORDED, Event.PREPARE): Cell((Step.TAKE_HOLDS, Step.WRITE_CDI), _READY),
    (State.HELD, Event.PREPARE): Cell((Step.WRITE_CDI,), _READY),
    (State.READY, Event.PREPARE): Cell((), _READY),
    (State.OUTDATED, Event.PREPARE): Cell(_BUILD, _READY),
    (State.RELEASING, Event.PREPARE): Cell((*_CLEAR, *_BUILD), _READY),
    (State.DAMAGED, Event.PREPARE): Cell((Step.SET_RECORD_ASIDE, *_BUILD), _READY),
    (State.SET_ASIDE, Event.PREPARE): Cell(_BUILD, _READY),
    # No cell for NEWER and PREPARE: such a claim is refused before anybody asks the table.
    (State.ABSENT, Event.UNPREPARE): Cell((Step.MARK_RELEASED,), _ABSENT),  # a prepare may be under way (Case G6)
    (State.LEFTOVERS, Event.UNPREPARE): Cell((Step.MARK_RELEASED, Step.REMOVE_CDI, Step.DROP_HOLDS), _ABSENT),
    (State.RECORDED, Event.UNPREPARE): Cell(_RELEASE, _ABSENT),
    (State.HELD, Event.UNPREPARE): Cell(_RELEASE, _ABSENT),
    (State.READY, Event.UNPREPARE): Cell(_RELEASE, _ABSENT),
    (State.OUTDATED, Event.UNPREPARE): Cell(_RELEASE, _ABSENT),
    (State.RELEASING, Event.UNPREPARE): Cell(_RELEASE, _ABSENT),
    (State.DAMAGED, Event.UNPREPARE): Cell(
        (Step.SET_RECORD_ASIDE, Step.MARK_RELEASED, Step.REMOVE_CDI, Step.DROP_HOLDS), _ABSENT
    ),
    (State.SET_ASIDE, Event.UNPREPARE): Cell((Step.MARK_RELEASED, Step.REMOVE_CDI, Step.DROP_HOLDS), _ABSENT),
    (State.NEWER, Event.UNPREPARE): Cell(_RELEASE, _ABSENT),
    (State.ABSENT, Event.RECOVER): Cell((), _ABSENT),
    (State.LEFTOVERS, Event.RECOVER): Cell((Step.REMOVE_CDI, Step.DROP_HOLDS), _ABSENT),
    (State.RECORDED, Event.RECOVER): Cell((Step.TAKE_HOLDS, Step.WRITE_CDI), _READY),
    (State.HELD, Event.RECOVER): Cell((Step.WRITE_CDI,), _READY),
    (State.READY, Event.RECOVER): Cell((), _READY),
    (State.OUTDATED, Event.RECOVER): Cell((Step.TAKE_HOLDS, Step.WRITE_RECORD, Step.WRITE_CDI), _READY),
    (State.RELEASING, Event.RECOVER): Cell(_CLEAR, _ABSENT),
    (State.DAMAGED, Event.RECOVER): Cell((Step.SET_RECORD_ASIDE,), _KEPT),
    (State.SET_ASIDE, Event.RECOVER): Cell((), _KEPT),
    (State.NEWER, Event.RECOVER): Cell((), frozenset({State.NEWER})),
    # Only what has a readable record can be compared with the API, hence abandoned.
    (State.RECORDED, Event.ABANDON): Cell(_RELEASE, _ABSENT),
    (State.HELD, Event.ABANDON): Cell(_RELEASE, _ABSENT),
    (State.READY, Event.ABANDON): Cell(_RELEASE, _ABSENT),
    (State.OUTDATED, Event.ABANDON): Cell(_RELEASE, _ABSENT),
    (State.RELEASING, Event.ABANDON): Cell(_RELEASE, _ABSENT),
}


def cell(state: State, event: Event) -> Cell:
    """What to do; NoSuchTransition where the table has no answer."""
    try:
        return TABLE[state, event]
    except KeyError:
        raise NoSuchTransition(f"{event.value} of a claim that is {state.value}") from None


@dataclass(frozen=True, slots=True)
class Traces:
    """What lies on disk of one claim, and how it compares with the hardware."""

    record: Record | None = None
    damaged: str | None = None
    """What is the matter with a record that cannot be read."""
    newer: int | None = None
    """The format of a record that is too new."""
    outdated: bool = False
    """The record tells of another boot or another card than there is now."""
    holds: frozenset[str] = frozenset()
    """Devices whose hold names this claim."""
    cdi_present: bool = False
    cdi_right: bool = False
    """The file says what the record and the hardware ask for; where the hardware is not known, that it can be read."""
    released: bool = False
    set_aside: bool = False
    """A record of this claim went to quarantine since the machine started."""


def state_of(traces: Traces) -> State:
    """The state that the traces amount to."""
    if traces.damaged is not None:
        return State.DAMAGED
    if traces.newer is not None:
        return State.NEWER
    if traces.record is None:
        if not traces.holds and not traces.cdi_present:
            return State.ABSENT
        return State.SET_ASIDE if traces.set_aside and not traces.released else State.LEFTOVERS
    if traces.released:
        return State.RELEASING
    if traces.outdated:
        return State.OUTDATED
    if traces.holds != traces.record.exclusive:
        return State.RECORDED
    return State.READY if traces.cdi_right else State.HELD
