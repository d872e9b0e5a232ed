"""One lock for each claim, between the threads and the processes of a node.

Two plugin processes serve at once during a rolling update, so the lock is a file. Only calls for the same claim wait for
each other: nothing slow is ever done under a lock that another claim needs.

A lock file needs an inode, and a release must work on a disk that has none left: what it removes may be what makes room. It
must work as well where somebody put a directory or a loop of links in the file's place. So
whoever has a claim's lock also has the directory's, shared, and a release that cannot make its file takes the directory's
alone instead. Why that is safe between processes:

- The directory is there already, and flock writes nothing; it is of the open file, so it ends with the process.
- Every way to a claim's lock goes through the directory's. Alone in it means that no claim's lock is held anywhere, by a
  file made before the disk was full as little as by one made since, for space may come free at any moment. A lock on the
  claim's record would not do: another process that makes the file by then would not look at it, and a rewritten record is
  another file.
- Nobody waits in it: shared or alone, it is only tried, like the file, so that there is no order to get wrong.
- Alone, all other claims' calls wait: so it is for a release, which takes milliseconds, and not for a prepare, which may wait
  for a driver and could not write its record anyway.
"""

import contextlib
import errno
import fcntl
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

SUFFIX = ".lock"
PATIENCE_SECONDS = 30.0
"""How long a call waits for an earlier one of the same claim; the kubelet itself gives up after 45 s, and tries again."""
PAUSE_MIN_SECONDS, PAUSE_MAX_SECONDS = 0.005, 0.5
"""Between two looks at a lock that another process has; doubling, so that short waits are short and long ones cheap."""


NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EISDIR, errno.ELOOP})
"""Errors of a disk that takes no new file, or not of this name, and lets what is there be read and locked."""


class LockTimeout(Exception):  # noqa: N818  # an answer, no fault of ours
    """The lock was not free in time."""


class ClaimLocks:
    """Locks by claim UID, each a file that exists only while somebody has or wants the lock."""

    def __init__(
        self,
        directory: Path,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self._directory = directory
        self.patience_seconds = patience_seconds
        self._monotonic = monotonic
        self._pause = pause or threading.Event().wait
        self._guard = threading.Lock()
        self._threads: dict[str, threading.Lock] = {}
        self._users: Counter[str] = Counter()

    @contextmanager
    def held(self, uid: str, *, cancelled: Callable[[], bool], without_room: bool = False) -> Iterator[None]:
        """Wait for the claim's lock and keep it. LockTimeout when it stays taken or the caller goes; OSError of the disk.

        `without_room`: on a disk that takes no new file, keep all claims' locks instead. For what is over soon only.
        """
        deadline = self._monotonic() + self.patience_seconds
        with self._among_threads(uid, self.patience_seconds) as mine:
            taken = self._wait(uid, deadline, cancelled, without_room=without_room) if mine else None
            if taken is None:
                raise LockTimeout
            with taken:
                yield

    @contextmanager
    def if_free(self, uid: str) -> Iterator[bool]:
        """Take the lock if nobody has it. Says whether; never waits, so it may be asked while another lock is held."""
        with self._among_threads(uid, 0) as mine:
            taken = self._try(uid) if mine else None
            if taken is None:
                yield False
                return
            with taken:
                yield True

    def uids(self) -> set[str]:
        """Claims with a lock file: in use, or left over by a process that was killed."""
        return {path.name.removesuffix(SUFFIX) for path in self._directory.glob(f"*{SUFFIX}")}

    @contextmanager
    def _among_threads(self, uid: str, seconds: float) -> Iterator[bool]:
        """Threads of one process queue here without polling; the entry goes with its last user."""
        with self._guard:
            lock = self._threads.setdefault(uid, threading.Lock())
            self._users[uid] += 1
        taken = False
        try:
            taken = lock.acquire(timeout=seconds) if seconds else lock.acquire(blocking=False)
            yield taken
        finally:
            if taken:
                lock.release()
            with self._guard:
                self._users[uid] -= 1
                if not self._users[uid]:
                    del self._users[uid], self._threads[uid]

    def _wait(
        self, uid: str, deadline: float, cancelled: Callable[[], bool], *, without_room: bool
    ) -> ExitStack | None:
        pause = PAUSE_MIN_SECONDS
        while (taken := self._try(uid, without_room=without_room)) is None:
            left = deadline - self._monotonic()
            if left <= 0 or cancelled():
                return None
            self._pause(min(pause, left))
            pause = min(2 * pause, PAUSE_MAX_SECONDS)
        return taken

    def _try(self, uid: str, *, without_room: bool = False) -> ExitStack | None:
        """The lock, to be let go by closing it; None while another process has it."""
        with ExitStack() as stack:
            room = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, room)
            try:
                fcntl.flock(room, fcntl.LOCK_SH | fcntl.LOCK_NB)
                descriptor = self._try_file(uid)
                if descriptor is None:
                    return None
                stack.callback(self._release, uid, descriptor)
            except BlockingIOError:
                return None
            except OSError as error:
                if not (without_room and error.errno in NO_ROOM):
                    raise
                try:
                    fcntl.flock(room, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return None
            return stack.pop_all()

    def _try_file(self, uid: str) -> int | None:
        path = self._path(uid)
        while True:
            descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_open_at(descriptor, path):
                    return descriptor
            except BlockingIOError:
                os.close(descriptor)
                return None
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # its last owner removed it between our two calls: it locks nothing any more

    def _release(self, uid: str, descriptor: int) -> None:
        """Remove first: from then on others lock a new file, and whoever waits for this one sees that it is gone."""
        with contextlib.suppress(OSError):  # a lock file more costs nothing; recovery removes it
            self._path(uid).unlink()
        os.close(descriptor)

    def _path(self, uid: str) -> Path:
        return self._directory / f"{uid}{SUFFIX}"


def _is_open_at(descriptor: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)
