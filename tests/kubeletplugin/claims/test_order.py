"""What a process may know to be in order, and when it has to look again."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kubeletplugin.claims.locks import FILE, ClaimLocks
from kubeletplugin.claims.refusals import Cancelled
from kubeletplugin.disk import LocalDisk
from tests.support.claims_world import a_claim, a_ref, device, here, refusal


def test_a_refusal_puts_nothing_in_order(world):
    """What an earlier call left is still known after one that was refused without touching it, and goes with the claim."""
    claims = world.claims()
    claims.recover()
    ref = world.allocate(a_claim(a_ref(), 0))
    with claims._locks.held(ref.uid, cancelled=here) as lock:
        LocalDisk().link(world.state_dir / "devices" / device(0), ref.uid)
        lock.disorder = True
    assert isinstance(refusal(lambda: claims.prepare(ref, cancelled=lambda: True)), Cancelled)
    claims.unprepare(ref)
    assert world.is_clear()


def test_a_new_lock_file_says_nothing_of_what_was_in_order(tmp_path: Path):
    """Its count begins anew, and may not come to be the one at which all was in order in another file."""
    locks, other = ClaimLocks(tmp_path), ClaimLocks(tmp_path)
    assert other.alone() is not None
    del other
    gc.collect()
    locks.all_in_order(locks.alone())
    (tmp_path / FILE).unlink()
    killed = ClaimLocks(tmp_path)
    with killed.held("u", cancelled=here):
        pass
    del killed
    gc.collect()
    with locks.held("u", cancelled=here) as lock:
        assert not lock.in_order


def test_who_is_counted_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """No moment at which a process is counted already and not yet seen: it could be taken for one that has ended."""
    locks = ClaimLocks(tmp_path)
    locks.alone()
    seen = []
    real = os.pwrite

    def write(*args):
        written = real(*args)
        seen.append(locks.alone())
        return written

    monkeypatch.setattr(os, "pwrite", write)
    ClaimLocks(tmp_path).alone()
    assert seen == [None]


def test_locks_last_to_the_end_of_the_process(tmp_path: Path):
    """Threads may be at work until the very end, after all that Python does when it exits."""
    program = (
        "import atexit, os, pathlib, sys\n"
        "from kubeletplugin.claims.locks import ClaimLocks\n"
        "def last():\n"
        "    print('ending', flush=True); sys.stdin.read()\n"
        "atexit.register(last)\n"
        "import weakref; weakref.finalize(ClaimLocks, int)\n"
        "locks = ClaimLocks(pathlib.Path(sys.argv[1]))\n"
        "held = locks.held('u', cancelled=lambda: False); held.__enter__()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout.readline() == b"ending\n"
        with ClaimLocks(tmp_path).if_free("u") as free:
            assert not free
