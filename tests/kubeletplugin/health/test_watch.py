"""The thread that looks: when, in turn with whom, and that nobody ever waits for it."""

import threading
from datetime import UTC, datetime

import pytest
import structlog.testing

from api.hardware import Machine
from api.names import gpu_device_name
from api.refusals import BadInput, Refused
from kubeletplugin.disk import LocalDisk
from kubeletplugin.health import watch as module
from kubeletplugin.health.book import HealthBook
from kubeletplugin.health.course import Look, Reading
from kubeletplugin.health.turns import Turns
from kubeletplugin.health.watch import AttendedSource, HealthWatch
from tests.support.gpus import a_machine

MACHINE = a_machine(2)
FIRST, SECOND = MACHINE.gpus
NOW = datetime(2026, 12, 1, 10, tzinfo=UTC)
SECONDS = 10.0


class Probe:
    """Answers what is in `answers`, and rests until somebody wants something."""

    def __init__(self):
        self.answers: dict[str, Reading] | Exception = {gpu.uuid: Reading(recovery=0) for gpu in MACHINE.gpus}
        self.xids = ()
        self.looked = threading.Semaphore(0)

    def attend(self, bedside, period_seconds):
        while not bedside.leaving():
            self.looked.release()
            if isinstance(self.answers, Exception):
                raise self.answers
            xids, self.xids = self.xids, ()
            bedside.looked(Look(NOW, self.answers, xids=xids))
            bedside.rest(period_seconds)


class World:
    def __init__(self, path):
        self.path, self.probe, self.turns = path, Probe(), Turns(patience_seconds=SECONDS)
        self.book = HealthBook(path, LocalDisk(), fresh_seconds=3600)
        self.changed, self.looked = threading.Semaphore(0), threading.Semaphore(0)
        self.watch = HealthWatch(
            self.probe,
            self.book,
            self.turns,
            state_dir=path,
            changed=self.changed.release,
            looked=self.looked.release,
            period_seconds=3600,
        )

    def ailments(self):
        return {gpu.uuid: [ailment.code for ailment in gpu.ailments] for gpu in self.book.gpus() if gpu.ailments}


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.watch.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "health"]


def test_it_looks_once_there_are_gpus_and_says_that_they_were_looked_at(world):
    """Unknown became known: whoever reports health hears of it, though nothing ails."""
    world.watch.start()
    assert not world.probe.looked.acquire(timeout=0.05)
    world.book.machine(MACHINE)
    world.watch.poke()
    assert world.looked.acquire(timeout=SECONDS)
    assert world.book.verdict(FIRST.uuid).healthy is True
    assert not world.changed.acquire(blocking=False)


def test_what_changes_is_told(world):
    """Once for each change."""
    world.book.machine(MACHINE)
    world.probe.answers = {FIRST.uuid: Reading(lost=True), SECOND.uuid: Reading(recovery=0)}
    world.watch.start()
    assert world.changed.acquire(timeout=SECONDS)
    world.watch.poke()
    assert world.probe.looked.acquire(timeout=SECONDS)
    assert world.probe.looked.acquire(timeout=SECONDS)
    assert not world.changed.acquire(blocking=False)


def test_discovery_has_its_turn_and_the_watch_goes_on_after_it(world):
    """NVML cannot be opened anew while the watch holds it open."""
    busy: list[bool] = []

    class Source:
        def discover(self):
            busy.append(world.turns._busy)
            assert not world.probe.looked.acquire(timeout=0.05), "the watch looks while discovery does"
            return MACHINE

    world.book.machine(MACHINE)
    world.watch.start()
    assert world.looked.acquire(timeout=SECONDS)
    assert world.probe.looked.acquire(timeout=SECONDS)
    assert AttendedSource(Source(), world.book, world.turns).discover() == MACHINE
    assert world.probe.looked.acquire(timeout=SECONDS), "it did not go on"
    assert busy == [True]


def test_a_driver_that_hangs_keeps_neither_discovery_nor_a_stop_waiting(tmp_path, monkeypatch):
    """Discovery is refused with what is the matter; the thread is left to the end of the process."""
    monkeypatch.setattr(module, "STOP_SECONDS", 0.05)
    world, hangs, over = World(tmp_path), threading.Event(), threading.Event()

    class Hanging:
        def attend(self, bedside, period_seconds):
            hangs.set()
            assert over.wait(SECONDS)

    class Never:
        def discover(self) -> Machine:
            raise AssertionError

    world.turns._patience = 0.05
    world.watch._probe = Hanging()
    world.book.machine(MACHINE)
    world.watch.start()
    try:
        assert hangs.wait(SECONDS)
        with pytest.raises(Refused, match="NVML has not answered for 0 s"):
            AttendedSource(Never(), world.book, world.turns).discover()
        with structlog.testing.capture_logs() as logs:
            world.watch.stop()
        assert [log["event"] for log in logs] == ["health watch left behind"]
        assert world.watch._thread.daemon
    finally:
        over.set()
        world.watch._thread.join()


def test_trouble_with_looking_is_said_once_and_outlived(world):
    """No driver for a while, or our own mistake: the thread goes on."""
    world.book.machine(MACHINE)
    world.probe.answers = Refused(BadInput("driver", "is not there", "wait"))
    with structlog.testing.capture_logs() as logs:
        world.watch.start()
        for _ in range(3):
            assert world.probe.looked.acquire(timeout=SECONDS)
            world.watch.poke()
        world.probe.answers = RuntimeError("our mistake")
        for _ in range(2):
            world.watch.poke()
            assert world.probe.looked.acquire(timeout=SECONDS)
        world.probe.answers = {FIRST.uuid: Reading(recovery=0)}
        world.watch.poke()
        assert world.looked.acquire(timeout=SECONDS)
    assert [log["why"] for log in logs if log["event"] == "GPUs' health not known"] == ["driver: is not there"]
    assert "look at the GPUs' health broke off" in [log["event"] for log in logs]


def test_an_administrators_word_ends_an_xid_once(world):
    """Case J5: a file named after the device; it is taken, and the next Xid counts again."""
    name = gpu_device_name(FIRST.place.address)
    world.book.machine(MACHINE)
    world.probe.answers = {gpu.uuid: Reading() for gpu in MACHINE.gpus}
    world.probe.xids = ((FIRST.uuid, 119), (SECOND.uuid, 119))
    world.watch.start()
    assert world.changed.acquire(timeout=SECONDS)
    assert world.ailments() == {FIRST.uuid: ["119"], SECOND.uuid: ["119"]}
    (world.path / "well").mkdir()
    (world.path / "well" / name).touch()
    (world.path / "well" / "gpu-ff-00-0").touch()
    world.watch.poke()
    assert world.changed.acquire(timeout=SECONDS)
    assert world.ailments() == {SECOND.uuid: ["119"]}
    world.watch.stop()
    assert [path.name for path in (world.path / "well").iterdir()] == ["gpu-ff-00-0"]


def test_stop_before_start_is_nothing(tmp_path):
    """A program that fails at start stops what it has."""
    World(tmp_path).watch.stop()
