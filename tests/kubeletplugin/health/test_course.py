"""How ailments begin, last and end: the rules, without clock or NVML."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from api.health import LOST, MEMORY, MEMORY_PENDING, NVML, RESET, XID
from kubeletplugin.health.course import Course, Look, Reading, after, missing, rebooted

START = datetime(2026, 12, 1, 10, 0, 0, tzinfo=UTC)
UUID = "GPU-53"
WELL = Reading(
    recovery=0, remap_failed=False, remap_pending=False, uncorrectable=0, sram_exceeded=False, xids_watched=True
)
"""An H100 that answers everything."""
OLD_CARD = Reading(retirement_pending=False, uncorrectable=0)
"""A card from before Ampere: no remapping, no recovery action."""


def seen(course, *steps, seconds=10):
    """The course after looks ten seconds apart; a step is a reading, or a reading and Xids."""
    for number, step in enumerate(steps, start=1):
        reading, *xids = step if isinstance(step, tuple) else (step,)
        look = Look(
            START + timedelta(seconds=seconds * number), {UUID: reading}, xids=tuple((UUID, xid) for xid in xids)
        )
        course = after(course, reading, look, UUID, reloaded=False)
    return course


def told(course):
    return [(ailment.kind, ailment.code, ailment.since[-9:-1]) for ailment in course.ailments]


def test_a_well_gpu_has_nothing():
    """However often it is looked at."""
    assert seen(Course(), WELL, WELL, OLD_CARD) == Course()


def test_lost_and_back():
    """It begins with the first look that shows it, keeps that time, and ends with the first answer."""
    lost = seen(Course(), WELL, Reading(lost=True), Reading(lost=True))
    assert told(lost) == [(LOST, "off-the-bus", "10:00:20")]
    assert seen(lost, WELL) == Course()


def test_application_xids_and_then_the_bus():
    """Case J1: 13, 31, 43, 45, 68 leave nothing; 79 is lost, and a 43 after it does not make it better (Case D5 of #1243)."""
    course = seen(Course(), (WELL, 13), (WELL, 31, 43), (WELL, 45), (WELL, 68))
    assert course == Course()
    course = seen(course, (Reading(lost=True), 79), (Reading(lost=True), 43))
    assert told(course) == [(LOST, "off-the-bus", "10:00:10")]


def test_an_xid_stays_while_the_gpu_merely_answers():
    """The catalogue: a reset is needed to clear it. Answering is none."""
    assert told(seen(Course(), (replace(WELL, recovery=None), 48), *[replace(WELL, recovery=None)] * 5)) == [
        (XID, "48", "10:00:10")
    ]


@pytest.mark.parametrize(
    ("xid", "ends"),
    [(48, True), (95, True), (119, False), (46, False)],
)
def test_the_drivers_word_ends_only_what_it_is_linked_to(xid, ends):
    """Case J5: with R565 the driver sets the recovery action for 48 and 95, not for 46 and 119 (the catalogue's linkage)."""
    first = seen(Course(), (WELL, xid), seconds=3)
    assert told(first) == [(XID, str(xid), "10:00:03")]
    assert bool(seen(first, WELL, seconds=6).ailments), "the driver may set it a moment after the Xid"
    assert bool(seen(first, WELL, seconds=9).ailments) is not ends


def test_a_reset_that_was_asked_for_and_done_ends_all_xids():
    """Case J5: no driver restart is needed. What began the need is over with it."""
    asked = seen(Course(), (replace(WELL, recovery=1), 119), replace(WELL, recovery=1))
    assert told(asked) == [(RESET, "gpu-reset", "10:00:10"), (XID, "119", "10:00:10")]
    assert seen(asked, WELL) == Course()


def test_a_reset_required_error_is_an_ailment_of_its_own():
    """NVML_ERROR_RESET_REQUIRED; the answer after the reset ends it, on cards without recovery action too."""
    course = seen(Course(), Reading(reset_required=True))
    assert told(course) == [(RESET, "reset-required", "10:00:10")]
    assert seen(course, OLD_CARD) == Course()


def test_a_lost_gpu_that_is_back_was_reset():
    """Its Xids ended with that; while it is lost nothing gets better."""
    course = seen(Course(), (replace(WELL, recovery=None), 119), Reading(lost=True))
    assert [kind for kind, _, _ in told(course)] == [LOST, XID]
    assert seen(course, replace(WELL, recovery=None)) == Course()


def test_a_new_load_of_the_module_and_an_administrators_word_end_xids():
    """The ways left where the driver tells nothing."""
    reading = replace(WELL, recovery=None)
    course = seen(Course(), (reading, 119))
    look = Look(START + timedelta(minutes=5), {UUID: reading})
    assert after(course, reading, look, UUID, reloaded=True) == Course()
    assert after(course, reading, replace(look, declared_well=frozenset({UUID})), UUID, reloaded=False) == Course()
    assert after(course, reading, replace(look, declared_well=frozenset({"GPU-64"})), UUID, reloaded=False) == course


def test_one_nvml_error_is_none():
    """Two in a row are an ailment; it keeps its time, and the first answer ends it."""
    broken = Reading(error="Unknown Error", error_code="unknown-error")
    assert seen(Course(), broken, WELL, broken).ailments == ()
    course = seen(Course(), broken, broken, broken)
    assert told(course) == [(NVML, "unknown-error", "10:00:20")]
    assert seen(course, WELL) == Course()


def test_memory_of_cards_that_remap():
    """A failed remapping makes unfit, a pending one does not; uncorrectable errors alone are contained."""
    course = seen(Course(), replace(WELL, remap_failed=True, remap_pending=True, uncorrectable=7))
    assert told(course) == [(MEMORY, "remap-failed", "10:00:10"), (MEMORY_PENDING, "remap-pending", "10:00:10")]
    assert told(seen(course, replace(WELL, remap_failed=True))) == [(MEMORY, "remap-failed", "10:00:10")]


def test_memory_of_cards_that_retire_pages():
    """There uncorrectable errors last until the driver is loaded anew."""
    course = seen(Course(), replace(OLD_CARD, uncorrectable=1, retirement_pending=True))
    assert [(kind, code) for kind, code, _ in told(course)] == [
        (MEMORY, "ecc-uncorrectable"),
        (MEMORY_PENDING, "retirement-pending"),
    ]
    assert seen(course, OLD_CARD) == Course()


def test_what_is_not_told_this_time_stays():
    """On a GPU with MIG slices in use NVML does not tell of remapping."""
    course = seen(Course(), replace(WELL, remap_pending=True, recovery=4))
    silent = seen(course, Reading(xids_watched=True))
    assert silent == course


def test_a_reboot_forgets_all_but_what_the_card_remembers():
    """And that ends with the first look that does not show it."""
    course = seen(Course(), (replace(WELL, remap_failed=True, recovery=1), 48))
    course = missing(course, START)
    assert [kind for kind, _, _ in told(rebooted(course))] == [MEMORY]
    assert seen(rebooted(course), replace(WELL, remap_failed=True)).ailments[0].since == "2026-12-01T10:00:10Z"
    assert seen(rebooted(course), WELL) == Course()


def test_a_source_that_knows_all_xids_has_the_word_on_them():
    """A simulated machine: what is taken from its list is mended, what stays keeps its time."""
    course = seen(Course(), replace(WELL, xids=frozenset({48, 119, 13})), replace(WELL, xids=frozenset({48})))
    assert told(course) == [(XID, "48", "10:00:10")]


def test_an_xid_of_another_gpu_is_none_of_ours():
    """NVIDIA's device plugin marks all GPUs where it cannot tell."""
    look = Look(START, {UUID: WELL}, xids=(("GPU-64", 79),))
    assert after(Course(), WELL, look, UUID, reloaded=False) == Course()


def test_a_gpu_that_was_not_looked_at_stays_as_it_was():
    """But an Xid that came meanwhile is its."""
    course = missing(Course(), START)
    assert after(course, None, Look(START, {}), UUID, reloaded=True) == course
    assert [
        a.code for a in after(Course(), None, Look(START, {}, xids=((UUID, 48),)), UUID, reloaded=False).ailments
    ] == ["48"]
