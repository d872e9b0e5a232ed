"""Threads, and two plugin processes on one directory, as in a rolling update (Case H4)."""

import gc
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from api.refusals import Refused
from kubeletplugin.claims.locks import FILE, ClaimLocks, LockTimeout
from kubeletplugin.claims.refusals import Busy, Cancelled, Changing, Held
from kubeletplugin.claims.store import Store
from kubeletplugin.disk import LocalDisk
from tests.support.claims_world import PlainContent, a_claim, a_ref, device, here, prepare, refusal
from tests.support.counting_disk import CountingDisk, Crash

WAIT = 10  # seconds until a test that hangs fails


class SlowContent(PlainContent):
    """CDI content that takes until it is let go."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()

    def common(self, machine):
        self.begun.set()
        assert self.go.wait(WAIT)
        return super().common(machine)


def test_many_claims_want_one_device_and_one_gets_it(world):
    """Eight threads on two processes: one prepared, seven refused, nothing of the seven left."""
    processes = [world.claims(), world.claims()]
    refs = [world.allocate(a_claim(a_ref(number), 0, 1)) for number in range(8)]
    barrier = threading.Barrier(8)

    def attempt(number: int) -> bool:
        barrier.wait(WAIT)
        try:
            prepare(processes[number % 2], refs[number])
        except Refused as refused:
            assert isinstance(refused.reason, Held | Changing), refused
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = [number for number, got in enumerate(pool.map(attempt, range(8))) if got]
    assert len(won) == 1
    prepared = {refs[number].uid for number in won}
    assert world.recorded() == world.cdi_uids() == set(world.holds().values()) == prepared
    assert world.leftovers() == []


def test_claims_in_opposite_order_do_not_wait_for_each_other(world):
    """Two claims over the same devices named in opposite order: refused or prepared, never stuck."""
    claims, other = world.claims(), world.claims()
    one, two = world.allocate(a_claim(a_ref(1), 0, 1, 2)), world.allocate(a_claim(a_ref(2), 2, 1, 0))
    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            first = pool.submit(lambda: _prepared(claims, one))
            second = pool.submit(lambda: _prepared(other, two))
            assert first.result(WAIT) + second.result(WAIT) == 1
            claims.unprepare(one)
            other.unprepare(two)
    assert world.is_clear()


def _prepared(claims, ref) -> bool:
    try:
        prepare(claims, ref)
    except Refused:
        return False
    return True


def test_same_claim_at_once_is_prepared_once_with_one_answer(world):
    """The kubelet of two pods, or two instances: all get the same."""
    processes = [world.claims(), world.claims()]
    ref = world.allocate(a_claim(a_ref(), 0, 1))
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda number: prepare(processes[number % 2], ref), range(6)))
    assert len(set(answers)) == 1
    assert world.recorded() == {"uid-1"}


def test_prepare_and_release_of_one_claim_at_once_end_in_all_or_nothing(world):
    """Whichever comes last."""
    processes = [world.claims(), world.claims()]
    ref = world.allocate(a_claim(a_ref(), 0, 1))

    def call(number: int) -> None:
        if number % 2:
            processes[number % 4 // 2].unprepare(ref)
        else:
            _prepared(processes[number % 4 // 2], ref)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(call, range(40)))
    kept = {"uid-1"} if world.recorded() else set()
    assert world.cdi_uids() == set(world.holds().values()) == world.recorded() == kept
    processes[0].unprepare(ref)
    assert world.is_clear()


def test_slow_claim_keeps_no_other_waiting(world):
    """Design section 6.3: while one claim's CDI content takes its time, another is prepared and released."""
    slow = world.content = SlowContent()
    claims = world.claims()
    one, two = world.allocate(a_claim(a_ref(1), 0)), world.allocate(a_claim(a_ref(2), 1))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: prepare(claims, one))
        assert slow.begun.wait(WAIT)
        world.content = PlainContent()
        prepare(claims, two)
        claims.unprepare(two)
        slow.go.set()
        waiting.result(WAIT)
    assert world.recorded() == {"uid-1"}


def test_second_call_for_a_busy_claim_is_told_so(world):
    """It waits, but not for ever; from another process too."""
    slow = world.content = SlowContent()
    claims = world.claims()
    ref = world.allocate(a_claim(a_ref(), 0))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: prepare(claims, ref))
        assert slow.begun.wait(WAIT)
        hasty = world.claims(patience_seconds=0.02)
        hasty._restored.set()
        assert refusal(lambda: prepare(hasty, ref)) == Busy(ref, "node-a", 0.02)
        assert refusal(lambda: hasty.unprepare(ref)) == Busy(ref, "node-a", 0.02)
        assert refusal(lambda: hasty.prepare(ref, cancelled=lambda: True)) == Cancelled(ref)
        slow.go.set()
        waiting.result(WAIT)
    assert world.told == []


def test_recovery_passes_over_a_claim_at_work(world):
    """A second process that starts in the middle of a prepare leaves it alone."""
    slow = world.content = SlowContent()
    claims = world.claims()
    ref = world.allocate(a_claim(a_ref(), 0))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: prepare(claims, ref))
        assert slow.begun.wait(WAIT)
        assert world.claims().recover().skipped == 1
        slow.go.set()
        waiting.result(WAIT)
    assert world.recorded() == world.cdi_uids() == {"uid-1"}


def test_hold_of_a_claim_at_work_is_not_stale(world):
    """Another claim's prepare has its hold but not its record yet: that is no leftover."""
    claims = world.claims()
    claims.recover()
    LocalDisk().link(world.state_dir / "devices" / device(0), "uid-9")
    with ClaimLocks(world.state_dir / "locks").held("uid-9", cancelled=here):
        reason = refusal(lambda: prepare(claims, world.allocate(a_claim(a_ref(), 0))))
    assert reason == Changing(a_ref(), device(0), "node-a", "uid-9")
    assert world.holds() == {device(0): "uid-9"}


def test_lock_is_one_at_a_time_between_many(tmp_path: Path):
    """Threads and processes alike."""
    ways = [ClaimLocks(tmp_path), ClaimLocks(tmp_path)]
    inside, seen = [], []

    def enter(number: int) -> None:
        with ways[number % 2].held("u", cancelled=here):
            inside.append(number)
            seen.append(len(inside))
            inside.remove(number)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(enter, range(60)))
    assert seen == [1] * 60
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_lock_of_a_killed_process_is_free(tmp_path: Path):
    """SIGKILL leaves no lock behind."""
    program = (
        "import sys, pathlib; from kubeletplugin.claims.locks import ClaimLocks\n"
        "with ClaimLocks(pathlib.Path(sys.argv[1])).held('u', cancelled=lambda: False):\n"
        "    print('locked', flush=True); sys.stdin.read()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout.readline() == b"locked\n"
        locks = ClaimLocks(tmp_path, patience_seconds=0.01)
        with pytest.raises(LockTimeout), locks.held("u", cancelled=here):
            pass
        with locks.if_free("u") as free:
            assert not free
        child.send_signal(signal.SIGKILL)
        child.wait(WAIT)
    with locks.if_free("u") as free:
        assert free


def test_removed_lock_file_locks_nothing(tmp_path: Path):
    """Somebody removes it, also between opening and locking: only a lock in the file that is there counts."""
    first, second = ClaimLocks(tmp_path), ClaimLocks(tmp_path)
    with first.if_free("u") as before:
        (tmp_path / FILE).unlink()
        with second.if_free("u") as after, first.if_free("v") as other, second.if_free("v") as other_too:
            assert before
            assert after
            assert other
            assert other_too is None  # both look at the file that is there now


@pytest.mark.parametrize("loop", [False, True], ids=["directory", "loop"])
def test_what_stands_in_the_lock_files_place_is_moved_away(tmp_path: Path, loop: bool):
    """No pod is kept from ending by it, and nothing that we did not make is destroyed."""
    path = tmp_path / FILE
    path.symlink_to(path.name) if loop else path.mkdir()
    with ClaimLocks(tmp_path).if_free("u") as lock:
        assert lock
    assert len(list(tmp_path.glob("*.foreign"))) == 1


def test_order_is_certain_only_for_who_was_alone(tmp_path: Path):
    """Another process may be cut off in the middle of any claim, now or since the last look."""
    locks = ClaimLocks(tmp_path)

    def in_order(uid: str = "u") -> bool:
        with locks.held(uid, cancelled=here) as lock:
            return lock.in_order

    assert not in_order()
    locks.all_in_order(locks.alone())
    assert in_order()
    other = ClaimLocks(tmp_path)
    assert in_order()  # it has not opened the file yet
    with other.held("v", cancelled=here):
        assert locks.alone() is None
    assert not in_order()
    del other
    gc.collect()
    assert not in_order()
    locks.all_in_order(locks.alone())
    assert in_order()


def test_who_leaves_disorder_is_looked_at_again(tmp_path: Path):
    """A call that ended in the middle, and one that said so; the next that ends well has put it in order."""
    locks = ClaimLocks(tmp_path)
    locks.all_in_order(locks.alone())
    with pytest.raises(KeyboardInterrupt), locks.held("u", cancelled=here):
        raise KeyboardInterrupt
    with locks.held("u", cancelled=here) as after:
        assert not after.in_order
        after.disorder = True
    with locks.held("u", cancelled=here) as again, locks.held("v", cancelled=here) as other:
        assert (again.in_order, other.in_order) == (False, True)
    with locks.held("u", cancelled=here) as last:
        assert last.in_order


def test_what_others_hold_costs_nothing_while_all_is_in_order(world, monkeypatch):
    """The holds of the node's other claims are looked at only where a call may have been cut off in the middle."""
    claims = world.claims()
    claims.recover()
    prepare(claims, world.allocate(a_claim(a_ref(2), 2)))
    looks = []
    real = Store.holds
    monkeypatch.setattr(Store, "holds", lambda store: looks.append(1) or real(store))
    ref = world.allocate(a_claim(a_ref(1), 0, 1))
    prepare(claims, ref)
    prepare(claims, ref)
    claims.unprepare(ref)
    assert looks == []
    other = world.claims()
    other.unprepare(ref)
    claims.unprepare(ref)
    assert len(looks) == 2  # two processes are at it: each may have been killed anywhere


def test_hold_left_behind_by_another_process_is_dropped_with_its_claim(world):
    """It was killed after taking the hold; the one that stays finds it, though it knew all to be in order before."""
    claims = world.claims()
    claims.recover()
    ref = world.allocate(a_claim(a_ref(), 0))
    with pytest.raises(Crash):
        prepare(world.claims(CountingDisk(1, Crash, late=True)), ref)
    assert world.holds() == {device(0): "uid-1"}
    claims.unprepare(ref)
    assert world.is_clear()


def test_another_claims_hold_is_not_dropped(tmp_path: Path):
    """Only links that name the claim are its to remove."""
    store = Store(tmp_path, LocalDisk())
    store.make_rooms()
    store.hold("gpu-0", "uid-1")
    store.drop("gpu-0", "uid-2")
    assert store.holds() == {"gpu-0": "uid-1"}


def test_waiting_is_bounded_and_pauses_grow(tmp_path: Path):
    """Not one pause in vain after the deadline, and no hot polling before."""
    now, pauses = [0.0], []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    waiter = ClaimLocks(tmp_path, monotonic=lambda: now[0], pause=pause)
    with ClaimLocks(tmp_path).held("u", cancelled=here), pytest.raises(LockTimeout), waiter.held("u", cancelled=here):
        pass
    assert sum(pauses) == pytest.approx(30)
    assert pauses[:8] == [0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.5]
    assert len(pauses) < 70


def test_waiting_ends_when_the_caller_goes(tmp_path: Path):
    """A call that nobody waits for gives its turn up."""
    calls = iter([False, False, True])
    waiter = ClaimLocks(tmp_path, pause=lambda _: None)
    with (
        ClaimLocks(tmp_path).held("u", cancelled=here),
        pytest.raises(LockTimeout),
        waiter.held("u", cancelled=lambda: next(calls)),
    ):
        pass
