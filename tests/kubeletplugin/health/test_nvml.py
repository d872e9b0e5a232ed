"""The GPUs' health through pynvml's own wrappers, over a library object of ours."""

from collections import deque
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pynvml
import pytest

from api.hardware import Gpu
from kubeletplugin.discovery.nvml import NvmlSource
from kubeletplugin.health.course import Course, Look, Reading, after
from kubeletplugin.health.nvml import NvmlProbe
from tests.support.fake_nvml import FakeNvml, gpu_like, installed
from tests.support.gpus import a_gpu

FIRST, SECOND = a_gpu(0x53), a_gpu(0x64)
PERIOD = 10.0


class Stay:
    """A bedside that keeps each look, and ends the turn after so many of them."""

    def __init__(self, looks: int) -> None:
        self.left, self.looks = looks, []
        self.courses: dict[str, Course] = {}
        self.rests: list[float] = []
        self.on_rest = lambda seconds: None

    def gpus(self) -> tuple[Gpu, ...]:
        return tuple(replace(gpu, ailments=self.courses.get(gpu.uuid, Course()).ailments) for gpu in (FIRST, SECOND))

    def looked(self, look: Look) -> None:
        self.looks.append(look)
        self.left -= 1
        for uuid, reading in look.readings.items():
            self.courses[uuid] = after(self.courses.get(uuid, Course()), reading, look, uuid, reloaded=False)

    def leaving(self) -> bool:
        return self.left <= 0

    def rest(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.on_rest(seconds)


@pytest.fixture
def library():
    made = FakeNvml([gpu_like(FIRST), gpu_like(SECOND)])
    with installed(made):
        yield made


class World:
    """NVML and a clock that goes on with each wait."""

    def __init__(self, library, tmp_path, *, watch_xids=True):
        self.library, self.now, self.script = library, 0.0, deque()
        self.sys = tmp_path / "sys"
        library.on_wait = self.wait
        self.waits: list[int] = []
        source = NvmlSource(Path("/"), self.sys, tmp_path / "proc")
        self.probe = NvmlProbe(
            source,
            self.sys,
            watch_xids=watch_xids,
            clock=lambda: self.now,
            wall=lambda: datetime(2026, 12, 1, 10, tzinfo=UTC),
        )

    def wait(self, milliseconds):
        self.waits.append(milliseconds)
        self.now += milliseconds / 1000
        return self.script.popleft() if self.script else pynvml.NVML_ERROR_TIMEOUT

    def attend(self, looks=1):
        stay = Stay(looks)
        self.probe.attend(stay, PERIOD)
        return stay


@pytest.fixture
def world(library, tmp_path):
    return World(library, tmp_path)


def test_all_that_an_h100_answers(world):
    """Nothing is the matter, Xids are watched, and NVML is closed when the turn is over."""
    look = world.attend().looks[0]
    assert look.readings == {
        gpu.uuid: Reading(
            recovery=0, remap_failed=False, remap_pending=False, uncorrectable=0, sram_exceeded=False, xids_watched=True
        )
        for gpu in (FIRST, SECOND)
    }
    assert world.library.open == 0


def test_what_a_card_does_not_support_is_none(world):
    """A T4: it retires pages, knows no recovery action, and has no event for Xids; an old library lacks whole calls."""
    gpu = world.library.gpus[0]
    gpu.recovery, gpu.remapped, gpu.retirement_pending, gpu.events = None, None, 1, 0
    world.library.missing = frozenset({"nvmlDeviceGetSramEccErrorStatus"})
    reading = world.attend().looks[0].readings[FIRST.uuid]
    assert reading == Reading(retirement_pending=True, uncorrectable=0, xids_watched=False)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (pynvml.NVML_ERROR_GPU_IS_LOST, Reading(lost=True)),
        (pynvml.NVML_ERROR_RESET_REQUIRED, Reading(reset_required=True)),
        (pynvml.NVML_ERROR_UNKNOWN, Reading(error="Unknown Error", error_code="unknown-error")),
    ],
)
@pytest.mark.parametrize("everywhere", [True, False], ids=["every call", "one call"])
def test_an_error_of_one_gpu_is_told_of_that_gpu(world, code, expected, everywhere):
    """Whichever call has it; the other GPU is not touched by it."""
    if everywhere:
        world.library.gpus[0].error = code
    else:
        world.library.gpus[0].errors = {"nvmlDeviceGetRemappedRows": code}
    readings = world.attend().looks[0].readings
    assert readings[FIRST.uuid] == expected
    assert readings[SECOND.uuid].recovery == 0


def test_a_gpu_that_nvml_does_not_list_is_lost(world):
    """So is one with another card in its place."""
    del world.library.gpus[0]
    assert world.attend().looks[0].readings[FIRST.uuid] == Reading(lost=True)
    world.library.gpus[0].uuid = b"GPU-another"
    assert world.attend().looks[0].readings[SECOND.uuid] == Reading(lost=True)


def test_memory_and_recovery_are_read_from_their_places(world):
    """Each number from its own field."""
    gpu = world.library.gpus[1]
    gpu.remapped, gpu.recovery, gpu.uncorrectable, gpu.sram_exceeded = (5, 6, 1, 0), 4, 9, 1
    reading = world.attend().looks[0].readings[SECOND.uuid]
    assert (reading.remap_pending, reading.remap_failed) == (True, False)
    assert (reading.recovery, reading.uncorrectable, reading.sram_exceeded) == (4, 9, True)


def test_an_xid_brings_the_next_look_at_once(world):
    """It is told with the GPU that it is of, and NVML stays open all the while."""
    world.script.extend([pynvml.NVML_ERROR_TIMEOUT, (1, 119)])
    stay = world.attend(looks=2)
    assert [look.xids for look in stay.looks] == [(), ((SECOND.uuid, 119),)]
    assert world.now == 2.0
    assert world.library.calls.count("nvmlInitWithFlags") == 1


def test_no_wait_takes_longer_than_a_second(world):
    """Somebody may want to stop."""
    world.attend(looks=2)
    assert world.waits == [1000] * 10


def test_a_gpu_that_needs_a_reset_is_let_go_between_looks(world):
    """Or the reset would be refused; the other one's Xids are still watched, and the reset is seen."""
    attached: list[set[int]] = []
    world.library.gpus[0].recovery = 1

    def wait(milliseconds):
        attached.append(set(world.library.attached))
        if len(attached) == 5:
            world.library.gpus[0].recovery = 0
        return world.wait(milliseconds)

    world.library.on_wait = wait
    stay = world.attend(looks=3)
    assert attached[:10] == [{1}] * 10
    assert attached[10:] == [{0, 1}] * 10
    assert stay.looks[0].readings[FIRST.uuid].recovery == 1
    assert stay.gpus()[0].ailments == ()


def test_without_watching_xids_nvml_is_open_for_looks_only(library, tmp_path):
    """`--watch-xids=false`: other tools may reset a GPU at any time; nobody is told that Xids are watched."""
    world = World(library, tmp_path, watch_xids=False)
    stay = Stay(2)
    open_then: list[int] = []
    stay.on_rest = lambda _: open_then.append(library.open)
    world.probe.attend(stay, PERIOD)
    assert (stay.rests, open_then) == ([PERIOD], [0])
    assert not stay.looks[0].readings[FIRST.uuid].xids_watched
    assert "nvmlEventSetCreate" not in library.calls


def test_a_wait_that_fails_is_no_busy_loop(world):
    """A lost GPU makes each wait fail at once; every failure rests a while before the next look."""
    world.script.extend([pynvml.NVML_ERROR_GPU_IS_LOST] * 3)
    stay = world.attend(looks=4)
    assert stay.rests == [1.0, 1.0, 1.0]


def test_a_card_without_events_keeps_no_other_from_being_watched(world):
    """An old card beside a new one."""
    world.library.gpus[0].events = 0
    world.script.extend([(1, 119)])
    stay = world.attend(looks=2)
    assert stay.looks[1].xids == ((SECOND.uuid, 119),)
    assert [stay.looks[1].readings[gpu.uuid].xids_watched for gpu in (FIRST, SECOND)] == [False, True]


@pytest.mark.parametrize("entry", ["nvmlEventSetCreate", "nvmlDeviceGetSupportedEventTypes"])
def test_a_library_without_events_is_looked_at_by_time(world, entry):
    """And nobody is told that Xids are watched. NVML is not held open for nothing."""
    world.library.missing = frozenset({entry})
    stay = world.attend(looks=3)
    assert not any(reading.xids_watched for reading in stay.looks[-1].readings.values())
    assert set(stay.rests) == {PERIOD}
    assert world.waits == []


def test_cards_that_take_no_registration_are_looked_at_by_time(world):
    """Whatever keeps NVML from it, there is no loop without a pause."""
    world.library.errors = {"nvmlDeviceRegisterEvents": pynvml.NVML_ERROR_UNKNOWN}
    assert world.attend(looks=3).rests == [PERIOD] * 2


def test_a_wait_that_does_not_wait_is_no_busy_loop(world):
    """Stand-ins for NVML answer at once that the time is over."""
    world.library.on_wait = lambda _: pynvml.NVML_ERROR_TIMEOUT
    stay = Stay(2)

    def rest(seconds):
        world.now += seconds

    stay.on_rest = rest
    world.probe.attend(stay, PERIOD)
    assert stay.rests == [1.0] * 10


def test_an_xid_of_a_gpu_that_is_not_ours_is_nobodys(world):
    """NVIDIA's device plugin marks all GPUs in this case."""
    world.library.gpus.append(gpu_like(a_gpu(0x75)))

    def wait(milliseconds):
        world.now += milliseconds / 1000
        world.library.registered.add(2)
        return 2, 79

    world.library.on_wait = wait
    assert [look.xids for look in world.attend(looks=2).looks] == [(), ()]


def test_the_load_of_the_module_is_told(world):
    """By the number of its directory in sysfs; empty where there is none."""
    assert world.attend().looks[0].driver_load == ""
    (world.sys / "module/nvidia").mkdir(parents=True)
    assert world.attend().looks[0].driver_load == str((world.sys / "module/nvidia").stat().st_ino)
