"""How a GPU's ailments begin, last and end, by what it answers.

The rules only: no clock, no NVML, no file. What codes mean is `api.health`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from api.health import (
    LOST,
    MEMORY,
    MEMORY_PENDING,
    NVML,
    OFF_THE_BUS,
    RECOVERY_ACTIONS,
    REMAP_FAILED,
    REMAP_PENDING,
    RESET,
    RESET_REQUIRED,
    RETIREMENT_PENDING,
    SRAM_THRESHOLD,
    UNCORRECTABLE,
    XID,
    XID_UNKNOWN,
    Ailment,
    is_linked,
    known,
    nvml_error,
    of_xid,
    weight,
)
from api.timestamps import time_text

FAILURES = 2
"""Looks in a row that end in an NVML error before it is an ailment: one may be a driver that is just being loaded."""
SETTLE = timedelta(seconds=5)
"""After an Xid, before the driver's saying that no action is needed counts."""
_BY_EVENT = (XID, XID_UNKNOWN)
_OF_MEMORY = (MEMORY, MEMORY_PENDING)
_ACTIONS = (*RECOVERY_ACTIONS.values(), "other-action")


@dataclass(frozen=True, slots=True)
class Reading:
    """What one GPU answered at one look; None is what it did not tell."""

    lost: bool = False
    """Fallen off the bus, or not listed any more."""
    reset_required: bool = False
    error: str | None = None
    """NVML's words where it answered with another error."""
    error_code: str = "error"
    """The same as a label value."""
    recovery: int | None = None
    """NVML_GPU_RECOVERY_ACTION_*; 0 is none."""
    remap_failed: bool | None = None
    remap_pending: bool | None = None
    retirement_pending: bool | None = None
    """Told by cards before Ampere only, which retire pages instead of remapping rows."""
    uncorrectable: int | None = None
    """Uncorrectable memory errors since the driver was loaded."""
    sram_exceeded: bool | None = None
    xids: frozenset[int] | None = None
    """All that hold now, where the source can tell (a simulated machine); None where they are events."""
    xids_watched: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """What all GPUs answered at one moment, and what happened since the look before."""

    at: datetime
    readings: Mapping[str, Reading]
    """By UUID. A GPU that is not among them was not looked at."""
    driver_load: str = ""
    """Another one whenever the kernel module was loaded anew; empty where that cannot be known."""
    xids: tuple[tuple[str, int], ...] = ()
    """UUID and Xid, in order."""
    declared_well: frozenset[str] = frozenset()
    """UUIDs of which an administrator says so."""


@dataclass(frozen=True, slots=True)
class Course:
    """One GPU so far."""

    ailments: tuple[Ailment, ...] = ()
    failures: int = field(default=0, compare=False)
    """Looks in a row that ended in an NVML error."""


def missing(before: Course, now: datetime) -> Course:
    """The GPU was found earlier in this boot and is not there now."""
    return Course(_with(before.ailments, [known(LOST, OFF_THE_BUS, time_text(now))]))


def failing(before: Course, code: str, error: str, now: datetime) -> Course:
    """It is not there now for an NVML error."""
    return Course(_with(before.ailments, [nvml_error(code, error, time_text(now))]))


def rebooted(before: Course) -> Course:
    """After a reboot: what is written in the card stays until a look says otherwise, so that it keeps its beginning."""
    return Course(tuple(ailment for ailment in before.ailments if ailment.kind in _OF_MEMORY))


def after(before: Course, reading: Reading | None, look: Look, uuid: str, *, reloaded: bool) -> Course:
    """The course after a look. `reloaded`: the kernel module was loaded anew since the look before."""
    course = before if reading is None else _by_reading(before, reading, look, uuid, reloaded=reloaded)
    since = time_text(look.at)
    news = [ailment for of, number in look.xids if of == uuid and (ailment := of_xid(number, since)) is not None]
    return Course(_with(course.ailments, news), course.failures) if news else course


def _by_reading(before: Course, reading: Reading, look: Look, uuid: str, *, reloaded: bool) -> Course:
    since = time_text(look.at)
    if reading.lost:  # it gets no better while it does not answer
        return missing(before, look.at)
    if reading.reset_required:
        rest = _without(before.ailments, LOST, NVML)
        return Course(_with(rest, [known(RESET, RESET_REQUIRED, since)]))
    if reading.error is not None:
        failures = before.failures + 1
        news = [nvml_error(reading.error_code, reading.error, since)] if failures >= FAILURES else []
        return Course(_with(before.ailments, news), failures)
    now = [*_told(reading, since), *_not_told(before, reading)]
    kinds = {ailment.kind for ailment in before.ailments}
    # A lost GPU answers again only after a reset or a new scan of the bus, which initialises it like a reset.
    asked = RESET in kinds and not any(ailment.kind == RESET for ailment in now)
    cured = reloaded or asked or LOST in kinds or uuid in look.declared_well
    now += _xids(before, reading, look.at, cured=cured)
    began = {(ailment.kind, ailment.code): ailment for ailment in before.ailments}
    return Course(_sorted(began.get((ailment.kind, ailment.code), ailment) for ailment in now))


def _told(reading: Reading, since: str) -> list[Ailment]:
    """What the answers say by themselves."""
    found = []
    if reading.recovery:
        found.append(known(RESET, RECOVERY_ACTIONS.get(reading.recovery, "other-action"), since))
    if reading.remap_failed:
        found.append(known(MEMORY, REMAP_FAILED, since))
    if reading.sram_exceeded:
        found.append(known(MEMORY, SRAM_THRESHOLD, since))
    if reading.uncorrectable and reading.retirement_pending is not None:
        # Later cards contain such errors, and say by remapping and recovery action what is left to do.
        found.append(known(MEMORY, UNCORRECTABLE, since))
    if reading.remap_pending:
        found.append(known(MEMORY_PENDING, REMAP_PENDING, since))
    if reading.retirement_pending:
        found.append(known(MEMORY_PENDING, RETIREMENT_PENDING, since))
    return found


def _not_told(before: Course, reading: Reading) -> Iterable[Ailment]:
    """What holds from before because the GPU did not tell this time: remapping, say, while MIG slices are in use."""
    silent: dict[str, object] = {
        REMAP_FAILED: reading.remap_failed,
        REMAP_PENDING: reading.remap_pending,
        SRAM_THRESHOLD: reading.sram_exceeded,
        UNCORRECTABLE: reading.uncorrectable,
        RETIREMENT_PENDING: reading.retirement_pending,
    }
    if reading.recovery is None:
        silent |= dict.fromkeys(_ACTIONS)
    return [ailment for ailment in before.ailments if silent.get(ailment.code, False) is None]


def _xids(before: Course, reading: Reading, now: datetime, *, cured: bool) -> Iterable[Ailment]:
    if reading.xids is not None:
        told = (of_xid(number, time_text(now)) for number in sorted(reading.xids))
        return [ailment for ailment in told if ailment is not None and ailment.kind != LOST]
    if cured:
        return []
    return [
        ailment
        for ailment in before.ailments
        if ailment.kind in _BY_EVENT
        and not (reading.recovery == 0 and is_linked(ailment) and now - _began(ailment) >= SETTLE)
    ]


def _began(ailment: Ailment) -> datetime:
    try:
        began = datetime.fromisoformat(ailment.since)
    except ValueError:  # somebody wrote into our file
        return datetime.min.replace(tzinfo=UTC)
    return began if began.tzinfo is not None else began.replace(tzinfo=UTC)


def _with(ailments: Iterable[Ailment], news: Iterable[Ailment]) -> tuple[Ailment, ...]:
    """Both; what is there already keeps its beginning."""
    found = {(ailment.kind, ailment.code): ailment for ailment in ailments}
    for ailment in news:
        found.setdefault((ailment.kind, ailment.code), ailment)
    return _sorted(found.values())


def _without(ailments: Iterable[Ailment], *kinds: str) -> tuple[Ailment, ...]:
    return tuple(ailment for ailment in ailments if ailment.kind not in kinds)


def _sorted(ailments: Iterable[Ailment]) -> tuple[Ailment, ...]:
    return tuple(sorted(ailments, key=weight))
