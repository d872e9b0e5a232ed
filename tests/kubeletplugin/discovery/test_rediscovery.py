"""When the hardware is looked at, and who hears of it."""

import threading
from collections.abc import Callable
from dataclasses import replace

import structlog.testing

from api.hardware import LeftOut, Machine
from api.pci import PciAddress
from api.refusals import BadInput, Reason, Refused
from kubeletplugin.discovery.rediscovery import Discovery
from kubeletplugin.discovery.source import NO_DRIVER_BOUND, NotThereYet
from tests.support.machines import a_machine

ABSENT = BadInput("driver", "is not there", "wait")
MACHINE = Machine(gpus=a_machine().gpus, boot_id="b007")


class Script:
    """A source that answers what is in `answer`: a machine, a reason, or an error."""

    def __init__(self, answer: Machine | Reason | Exception) -> None:
        self.answer = answer
        self.looked = threading.Semaphore(0)

    def discover(self) -> Machine:
        self.looked.release()
        match self.answer:
            case Machine() as machine:
                return machine
            case Exception() as error:
                raise error
            case reason:
                raise Refused(reason)


def a_discovery(
    source: Script, *, on_change: Callable[[Machine], None] = lambda _: None, period_seconds: float = 60.0
) -> Discovery:
    return Discovery(source, on_change, period_seconds=period_seconds)


def test_machine_equal_to_the_last_changes_nothing() -> None:
    """Whoever listens hears of changes only."""
    heard: list[Machine] = []
    source = Script(MACHINE)
    discovery = a_discovery(source, on_change=heard.append)
    assert [discovery.look(), discovery.look()] == [60.0, 60.0]
    assert heard == [MACHINE]
    source.answer = replace(MACHINE, boot_id="rebooted")
    discovery.look()
    assert [machine.boot_id for machine in heard] == ["b007", "rebooted"]


def test_driver_that_is_not_there_is_awaited_with_doubling_patience() -> None:
    """Reported once, retried after 1 s doubling to 60 s, and forgotten when it comes."""
    source = Script(ABSENT)
    troubles: list[Reason | None] = []
    discovery = Discovery(source, lambda _: None, on_trouble=troubles.append)
    with structlog.testing.capture_logs() as logs:
        assert [discovery.look() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert [(log["event"], log["why"]) for log in logs] == [("hardware not found", "driver: is not there")]
    assert (discovery.current, discovery.why, troubles) == (None, ABSENT, [ABSENT])
    source.answer = MACHINE
    assert discovery.look() == 60
    assert (discovery.current, discovery.why, troubles) == (MACHINE, None, [ABSENT, None])
    source.answer = ABSENT
    assert discovery.look() == 1


def test_empty_at_boot_is_awaited_until_the_gpus_come() -> None:
    """Case I6: count 0 for a while after boot, then 4; nothing is reported in between."""
    heard: list[Machine] = []
    source = Script(NotThereYet((PciAddress.parse("0000:53:00.0"),)))
    discovery = a_discovery(source, on_change=heard.append)
    assert [discovery.look() for _ in range(3)] == [1, 2, 4]
    assert heard == []
    source.answer = MACHINE
    discovery.look()
    assert heard == [MACHINE]


def test_missing_gpu_is_awaited_while_the_others_are_reported() -> None:
    """Case I6: three of four first. The three are used at once, the fourth is looked for soon."""
    some = replace(MACHINE, left_out=(LeftOut("0000:75:00.0", NO_DRIVER_BOUND),))
    source = Script(some)
    discovery = a_discovery(source)
    assert [discovery.look() for _ in range(3)] == [1, 2, 4]
    assert discovery.current == some
    source.answer = MACHINE
    assert discovery.look() == 60


def test_gpu_left_out_for_good_is_not_awaited_and_said_once() -> None:
    """A card that another driver has will not come."""
    given_away = LeftOut("0000:75:00.0", "bound to the driver vfio-pci, not to nvidia")
    discovery = a_discovery(Script(replace(MACHINE, left_out=(given_away,))))
    with structlog.testing.capture_logs() as logs:
        assert [discovery.look(), discovery.look()] == [60, 60]
    assert [log["device"] for log in logs if log["event"] == "device left out"] == ["0000:75:00.0"]


def test_machine_stays_current_while_its_driver_is_away() -> None:
    """A driver upgrade does not take the hardware away from claims that are held."""
    source = Script(MACHINE)
    discovery = a_discovery(source)
    discovery.look()
    source.answer = ABSENT
    discovery.look()
    assert (discovery.current, discovery.why) == (MACHINE, ABSENT)


def test_change_that_was_not_taken_is_told_again() -> None:
    """A listener that breaks off does not make the change unheard of."""
    heard: list[Machine] = []

    def listen(machine: Machine) -> None:
        heard.append(machine)
        if len(heard) == 1:
            raise OSError

    discovery = a_discovery(Script(MACHINE), on_change=listen)
    with structlog.testing.capture_logs() as logs:
        assert discovery._look_safely() == 1
    assert logs[-1]["event"] == "look at the hardware broke off"
    assert discovery._look_safely() == 60
    assert heard == [MACHINE, MACHINE]


def test_thread_looks_at_start_and_when_poked_and_stops_at_once() -> None:
    """With an hour's period only a poke can be the cause."""
    source = Script(MACHINE)
    discovery = a_discovery(source, period_seconds=3600)
    discovery.start()
    try:
        assert source.looked.acquire(timeout=10)
        discovery.poke()
        assert source.looked.acquire(timeout=10)
    finally:
        discovery.stop()
    assert not source.looked.acquire(blocking=False)


def test_thread_looks_again_by_the_timer() -> None:
    """Changes that nothing announces are found too."""
    source = Script(MACHINE)
    discovery = a_discovery(source, period_seconds=0.001)
    discovery.start()
    try:
        assert all(source.looked.acquire(timeout=10) for _ in range(3))
    finally:
        discovery.stop()


def test_thread_outlives_an_error_of_its_source() -> None:
    """Nothing ends the only thread that would see the repair."""
    source = Script(RuntimeError("our mistake"))
    discovery = a_discovery(source)
    with structlog.testing.capture_logs():
        discovery.start()
        try:
            assert source.looked.acquire(timeout=10)
            source.answer = MACHINE
            discovery.poke()
            assert source.looked.acquire(timeout=10)
        finally:
            discovery.stop()
    assert discovery.current == MACHINE


def test_stop_before_start_is_nothing() -> None:
    """A program that fails at start stops what it has."""
    a_discovery(Script(MACHINE)).stop()
