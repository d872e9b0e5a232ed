"""Which GPUs a boot has had and what ails them, through losses, restarts and reboots."""

import os
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import structlog.testing

from api.hardware import LeftOut, Machine
from api.health import LOST, NVML
from api.pci import PciAddress
from kubeletplugin.disk import LocalDisk
from kubeletplugin.health.book import HealthBook
from kubeletplugin.health.course import Look, Reading
from tests.support.counting_disk import CountingDisk
from tests.support.gpus import a_gpu, a_machine

FRESH = 35.0
WELL = Reading(recovery=0, xids_watched=True)
GONE = Reading(lost=True)


class Node:
    """A state directory, a clock, and the book's process."""

    def __init__(self, path):
        self.path, self.now = path, 0.0
        self.disk = LocalDisk()
        self.book = self.started()

    def started(self):
        """A new process reads what the old one kept."""
        self.book = HealthBook(
            self.path,
            self.disk,
            fresh_seconds=FRESH,
            clock=lambda: self.now,
            wall=lambda: datetime(2026, 12, 1, 10, tzinfo=UTC) + timedelta(seconds=self.now),
        )
        return self.book

    def look(self, readings, **more):
        at = datetime(2026, 12, 1, 10, tzinfo=UTC) + timedelta(seconds=self.now)
        return self.book.looked(Look(at, readings, **more))


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


FOUND = a_machine(2, gpus=(a_gpu(0x10, minor=0), a_gpu(0x18, minor=1)))
FIRST, SECOND = FOUND.gpus


def without(gpu, why="NVML: GPU is lost"):
    """The machine as discovery finds it without this GPU."""
    left_out = (LeftOut(str(gpu.place.address), why),) if why else ()
    return replace(FOUND, gpus=tuple(other for other in FOUND.gpus if other != gpu), left_out=left_out)


def ailments(machine):
    return [[(a.kind, a.code, a.since[-9:-1]) for a in gpu.ailments] for gpu in machine.gpus]


def test_a_well_machine_is_as_it_was_found(node):
    """Nothing is added where nothing is the matter."""
    assert node.book.machine(FOUND) == FOUND


def test_a_gpu_that_falls_off_the_bus_stays_in_the_machine(node):
    """Case J5: a claim names it. It is lost, no longer left out, and all else that is known of it stays."""
    node.book.machine(FOUND)
    node.now = 60
    machine = node.book.machine(without(SECOND))
    assert [gpu.uuid for gpu in machine.gpus] == [FIRST.uuid, SECOND.uuid]
    assert ailments(machine) == [[], [(LOST, "off-the-bus", "10:01:00")]]
    assert machine.left_out == ()
    assert replace(machine.gpus[1], ailments=()) == SECOND


@pytest.mark.parametrize("why", ["", "the driver has it, but NVML does not list it", "no driver bound"])
def test_a_gpu_that_is_missing_is_lost_whatever_is_said_of_it(node, why):
    """Also where sysfs does not show it any more."""
    node.book.machine(FOUND)
    assert ailments(node.book.machine(without(SECOND, why)))[1][0][:2] == (LOST, "off-the-bus")


def test_a_gpu_that_nvml_stumbles_over_stays_with_the_error(node):
    """The watch finds out more; meanwhile it is not taken for well."""
    node.book.machine(FOUND)
    machine = node.book.machine(without(SECOND, "NVML: Unknown Error"))
    assert ailments(machine)[1][0][:2] == (NVML, "unknown-error")
    node.look({FIRST.uuid: WELL, SECOND.uuid: Reading(reset_required=True)})
    assert [kind for kind, *_ in ailments(node.book.machine(without(SECOND, "NVML: GPU requires restart")))[1]] == [
        "reset-needed"
    ]


def test_a_gpu_that_was_given_to_a_virtual_machine_is_gone(node):
    """That was somebody's will, and nothing is lost."""
    node.book.machine(FOUND)
    found = without(SECOND, "bound to the driver vfio-pci, not to nvidia")
    assert node.book.machine(found) == found


def test_another_card_in_its_place_takes_it(node):
    """A card that was exchanged while the node ran: one device, the new one."""
    node.book.machine(FOUND)
    exchanged = replace(FOUND, gpus=(FIRST, replace(SECOND, uuid="GPU-new")))
    assert node.book.machine(exchanged) == exchanged


def test_a_minor_that_another_has_now_is_not_kept(node):
    """Case F5: two GPUs with one device node would keep both from everybody."""
    node.book.machine(FOUND)
    machine = node.book.machine(replace(FOUND, gpus=(replace(SECOND, minor=0),)))
    assert [(gpu.uuid, gpu.minor) for gpu in machine.gpus] == [(FIRST.uuid, None), (SECOND.uuid, 0)]


def test_discovery_takes_away_no_ailment(node):
    """It only lists; the watch, which asks, says when a GPU answers again."""
    node.book.machine(FOUND)
    assert node.look({FIRST.uuid: WELL, SECOND.uuid: GONE})
    assert ailments(node.book.machine(FOUND))[1]
    assert node.look({FIRST.uuid: WELL, SECOND.uuid: WELL})
    assert node.book.machine(FOUND) == FOUND


def test_a_restart_keeps_gpus_ailments_and_their_beginning(node):
    """Case J3: the new process finds one GPU and tells of two, the second lost since the time that it was."""
    node.book.machine(FOUND)
    node.now = 60
    node.look({FIRST.uuid: WELL, SECOND.uuid: GONE})
    node.now = 600
    node.started()
    machine = node.book.machine(without(SECOND))
    assert ailments(machine) == [[], [(LOST, "off-the-bus", "10:01:00")]]
    assert not node.look({FIRST.uuid: WELL, SECOND.uuid: GONE})
    assert node.look({FIRST.uuid: WELL, SECOND.uuid: WELL})
    assert node.book.machine(FOUND) == FOUND


def test_a_gpu_lost_while_no_plugin_ran_is_lost(node):
    """The file has all GPUs of the boot, not those only that ail."""
    node.book.machine(FOUND)
    node.started()
    assert node.book.has_found("boot-1")
    assert len(node.book.machine(without(SECOND)).gpus) == 2


def test_after_a_reboot_a_lost_gpu_is_gone(node):
    """It is left out and said, as a GPU that this boot never had."""
    node.book.machine(FOUND)
    node.look({FIRST.uuid: Reading(remap_failed=True), SECOND.uuid: GONE})
    node.now = 600
    node.started()
    assert not node.book.has_found("boot-2")
    found = replace(without(SECOND), boot_id="boot-2")
    machine = node.book.machine(found)
    assert [gpu.uuid for gpu in machine.gpus] == [FIRST.uuid]
    assert machine.left_out == found.left_out
    assert ailments(machine) == [[("memory", "remap-failed", "10:00:00")]], "what the card keeps, keeps its beginning"


def test_a_new_load_of_the_module_is_noticed_across_a_restart(node):
    """An Xid ends by it, and only by it."""
    node.book.machine(FOUND)
    reading = {gpu.uuid: Reading() for gpu in FOUND.gpus}
    node.look(reading, driver_load="17", xids=((SECOND.uuid, 119),))
    node.started()
    node.book.machine(FOUND)
    assert not node.look(reading, driver_load="17")
    assert not node.look(reading)
    assert node.look(reading, driver_load="18")


@pytest.mark.parametrize("content", [b"", b"\xff\x00", b"{}", b'{"format": 2}', b"[1]", b'{"format": 1, "gpus": [{}]}'])
def test_a_damaged_file_is_set_aside_and_all_begins_anew(node, content):
    """Nobody is hindered; the bytes stay for who wants to look."""
    (node.path / "health.json").write_bytes(content)
    with structlog.testing.capture_logs() as logs:
        node.started()
        assert node.book.machine(FOUND) == FOUND
    assert [log["log_level"] for log in logs if log["event"] == "health book damaged"] == ["error"]
    assert (node.path / "health.json.damaged").read_bytes() == content
    node.started()
    assert len(node.book.machine(without(SECOND)).gpus) == 2


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["FIFO", "directory"])
def test_what_is_no_file_is_set_aside_too(node, make):
    """A FIFO would let the plugin wait for ever before it serves anybody, and no file can take a directory's place."""
    make(node.path / "health.json")
    held = os.open(node.path / "health.json", os.O_RDONLY | os.O_NONBLOCK)
    started = threading.Thread(target=node.started, daemon=True)
    with structlog.testing.capture_logs() as logs:
        started.start()
        started.join(5)
        hung = started.is_alive()
        if hung:  # let it go
            os.close(os.open(node.path / "health.json", os.O_WRONLY))
            started.join(5)
        os.close(held)
        assert not hung
        assert node.book.machine(FOUND) == FOUND
    assert [log["log_level"] for log in logs if log["event"] == "health book damaged"] == ["error"]
    assert (node.path / "health.json").is_file()


def test_a_full_disk_is_said_once_and_hides_nothing(node, monkeypatch):
    """What ails is told all the same, and written when there is room."""
    node.book.machine(FOUND)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, structlog.testing.capture_logs() as logs:
        patch.setattr(node.disk, "write", full)
        for _ in range(3):
            node.look({FIRST.uuid: WELL, SECOND.uuid: GONE})
        assert ailments(node.book.machine(FOUND))[1]
    assert [log["event"] for log in logs].count("health book not written") == 1
    node.look({FIRST.uuid: WELL, SECOND.uuid: GONE})
    node.started()
    assert ailments(node.book.machine(FOUND))[1]


def test_nothing_is_written_while_nothing_changes(node):
    """A look every ten seconds is no write every ten seconds."""
    node.disk = CountingDisk()
    node.started()
    for _ in range(3):
        node.book.machine(FOUND)
        node.look({FIRST.uuid: WELL, SECOND.uuid: WELL})
    assert node.disk.count == 1


def test_nobody_is_called_well_that_nobody_looked_at(node):
    """Unknown before the first look and when the last is too long ago; what ails is told for as long as it does."""
    node.book.machine(FOUND)
    assert node.book.verdict(FIRST.uuid).healthy is None
    node.look({FIRST.uuid: WELL, SECOND.uuid: GONE})
    assert (node.book.verdict(FIRST.uuid).healthy, node.book.verdict(FIRST.uuid).message) == (True, "")
    lost = node.book.verdict(SECOND.uuid)
    assert lost.healthy is False
    assert lost.message.startswith("the GPU has fallen off the bus, since 2026-12-01T10:00:00Z; ")
    node.now = FRESH + 1
    assert (node.book.verdict(FIRST.uuid).healthy, node.book.verdict(SECOND.uuid).healthy) == (None, False)
    assert node.book.verdict("GPU-unheard-of").healthy is None


def test_a_gpu_that_has_answered_with_an_error_only_is_not_called_well(node):
    """One error is no ailment, and no answer either; what it answered before counts while it is fresh."""
    node.book.machine(FOUND)
    node.look({FIRST.uuid: Reading(error="Unknown Error"), SECOND.uuid: WELL})
    first = node.book.verdict(FIRST.uuid)
    assert (first.healthy, first.message) == (None, "NVML has answered for it with an error")
    node.now = 10
    node.look({FIRST.uuid: WELL, SECOND.uuid: Reading(error="Unknown Error")})
    assert [node.book.verdict(gpu.uuid).healthy for gpu in FOUND.gpus] == [True, True]
    node.now = FRESH + 1
    assert [node.book.verdict(gpu.uuid).healthy for gpu in FOUND.gpus] == [True, None]


def test_a_gpu_whose_xids_are_not_watched_says_so(node):
    """It answered, and that is all that is known."""
    node.book.machine(FOUND)
    node.look({FIRST.uuid: Reading(recovery=0), SECOND.uuid: replace(WELL, remap_pending=True)})
    assert node.book.verdict(FIRST.uuid).message == "Xids are not watched"
    pending = node.book.verdict(SECOND.uuid)
    assert pending.healthy is True
    assert pending.message.startswith("a bad row of memory waits")


def test_gpus_are_told_in_the_order_of_their_addresses(node):
    """Equal machines are equal, whichever of them is lost."""
    machine = Machine(gpus=tuple(a_gpu(bus) for bus in (0x10, 0x20, 0x30)), boot_id="b")
    node.book.machine(machine)
    found = replace(machine, gpus=machine.gpus[1:])
    assert [gpu.place.address for gpu in node.book.machine(found).gpus] == [
        PciAddress(0, bus, 0, 0) for bus in (0x10, 0x20, 0x30)
    ]
