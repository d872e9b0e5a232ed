"""What is no file stands where one of ours should be: nobody waits for it, and it means nothing."""

import os
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kubeletplugin.claims.locks import FILE, ClaimLocks
from kubeletplugin.disk import content_of
from tests.support.claims_world import World, a_claim, a_ref, device, here, prepare

WAIT = 10  # seconds until a test that hangs fails


@pytest.fixture
def two(world: World) -> World:
    claims = world.claims()
    for number in (1, 2):
        prepare(claims, world.allocate(a_claim(a_ref(number), number)))
    return world


def _in_time(call):
    """The call's result; it fails instead of hanging the run. The thread of a call that hangs is let go by its FIFO's end."""
    thread_result = []
    thread = threading.Thread(target=lambda: thread_result.append(call()), daemon=True)
    thread.start()
    thread.join(WAIT)
    assert thread_result, "it waits for what is no file"
    return thread_result[0]


def _put(path: Path, kind: str) -> None:
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    else:
        os.mknod(path, stat.S_IFSOCK | 0o600)  # bind() takes no path of more than 107 bytes


KINDS = pytest.mark.parametrize("kind", ["fifo", "socket", "endless"])


@KINDS
def test_content_of_what_is_no_file_is_an_error(tmp_path: Path, kind: str):
    """At once; an endless device would fill the memory."""
    path = tmp_path / "it"
    _put(path, kind)

    def read():
        with pytest.raises(OSError, match=r"not a regular file|No such device"):
            content_of(path)
        return True

    assert _in_time(read)


@KINDS
@pytest.mark.parametrize("room", ["claims", "cdi", "released"])
def test_a_fifo_stops_neither_recovery_nor_release(two: World, room: str, kind: str):
    """Nor does it take anything from the containers of its claim."""
    path = two.cdi_dir / "gpu.lanewise.dev-claim_uid-1.json" if room == "cdi" else two.state_dir / room / "uid-1.json"
    _put(path, kind)
    claims = two.claims()
    assert _in_time(claims.recover).skipped == 0
    assert two.cdi_uids() == {"uid-1", "uid-2"}
    assert two.holds() == {device(1): "uid-1", device(2): "uid-2"}
    assert _in_time(lambda: prepare(claims, a_ref(1)))
    assert two.recorded() == {"uid-1", "uid-2"}
    if room != "released":
        assert path.is_file()
    assert _in_time(lambda: claims.unprepare(a_ref(1)) is None)
    assert (two.recorded(), two.cdi_uids(), two.holds()) == ({"uid-2"}, {"uid-2"}, {device(2): "uid-2"})


def test_a_fifo_is_no_release(two: World):
    """A claim prepared and complete stays so: nothing but a mark of ours says that it was released."""
    _put(two.state_dir / "released" / "uid-1.json", "fifo")
    claims = two.claims()
    for _ in range(2):
        _in_time(claims.recover)
    assert two.recorded() == {"uid-1", "uid-2"}


@pytest.mark.parametrize("kind", ["fifo", "socket"])
@pytest.mark.parametrize("running", [False, True], ids=["at start", "while running"])
def test_what_is_no_file_in_the_lock_files_place_is_moved_away(two: World, kind: str, running: bool):
    """Calls are answered, and between processes too only one at a time is at work on a claim."""
    claims = two.claims()
    if running:
        claims.recover()
    locks = two.state_dir / "locks"
    _put(locks / FILE, kind)
    assert _in_time(lambda: prepare(claims, a_ref(1)))
    claims.unprepare(a_ref(1))
    assert (locks / FILE).is_file()
    first, second = ClaimLocks(locks), ClaimLocks(locks)
    with first.if_free("u") as one, second.if_free("u") as other:
        assert one
        assert other is None


def test_a_file_where_a_hold_should_be_keeps_no_pod_from_ending(two: World):
    """Also in a process that knows all to be in order: it looks at the claim's own holds only."""
    claims = two.claims()
    claims.recover()
    path = two.state_dir / "devices" / device(1)
    path.unlink()
    path.write_text("not ours")
    claims.unprepare(a_ref(1))
    assert two.recorded() == two.cdi_uids() == {"uid-2"}
    assert path.read_text() == "not ours"


def test_a_lock_is_free_again_after_its_file_could_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A disk that fails in the wrong moment keeps no claim from another process."""
    locks, other = ClaimLocks(tmp_path), ClaimLocks(tmp_path)
    locks.all_in_order(1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", _fails)
        with pytest.raises(OSError, match="broken"), locks.held("u", cancelled=here):
            pass
    with other.if_free("u") as lock:
        assert lock


def _fails(*_: object) -> bytes:
    raise OSError(5, "broken")


def test_a_process_stopped_while_it_counts_keeps_no_call_waiting_for_ever(tmp_path: Path, monkeypatch):
    """All calls need the file open; they are refused with its name, and the next ones served."""
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    stopped = ClaimLocks(tmp_path)
    with stopped.if_free("u"):
        pass
    assert stopped._file.lock(0)
    locks = ClaimLocks(tmp_path)
    with pytest.raises(OSError, match=r"locked.*claims"), locks.if_free("v"):
        pass
    assert sum(pauses) == pytest.approx(1)
    stopped._file.unlock(0)
    with locks.if_free("v") as lock:
        assert lock


def test_many_threads_at_once_find_one_lock_file(tmp_path: Path):
    """Also while it is removed under them all the time."""
    locks = ClaimLocks(tmp_path)

    def enter(number: int) -> bool:
        if number % 16 == 0:
            (tmp_path / FILE).unlink(missing_ok=True)
        with locks.held(f"u{number % 8}", cancelled=here):
            return True

    with ThreadPoolExecutor(64) as pool:
        assert all(pool.map(enter, range(640)))
