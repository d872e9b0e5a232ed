"""One lock for each claim, between the threads and the processes of a node.

Two plugin processes serve at once during a rolling update, so the lock is a file. Only calls for the same claim wait for
each other: nothing slow is ever done under a lock that another claim needs.
"""

import contextlib
import fcntl
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

SUFFIX = ".lock"
PATIENCE_SECONDS = 30.0
"""How long a call waits for an earlier one of the same claim; the kubelet itself gives up after 45 s, and tries again."""
PAUSE_MIN_SECONDS, PAUSE_MAX_SECONDS = 0.005, 0.5
"""Between two looks at a lock that another process has; doubling, so that short waits are short and long ones cheap."""


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
    def held(self, uid: str, *, cancelled: Callable[[], bool]) -> Iterator[None]:
        """Wait for the claim's lock and keep it. LockTimeout when it stays taken or the caller goes; OSError of the disk."""
        deadline = self._monotonic() + self.patience_seconds
        with self._among_threads(uid, self.patience_seconds) as mine:
            descriptor = self._wait(uid, deadline, cancelled) if mine else None
            if descriptor is None:
                raise LockTimeout
            try:
                yield
            finally:
                self._release(uid, descriptor)

    @contextmanager
    def if_free(self, uid: str) -> Iterator[bool]:
        """Take the lock if nobody has it. Says whether; never waits, so it may be asked while another lock is held."""
        with self._among_threads(uid, 0) as mine:
            descriptor = self._try(uid) if mine else None
            if descriptor is None:
                yield False
                return
            try:
                yield True
            finally:
                self._release(uid, descriptor)

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

    def _wait(self, uid: str, deadline: float, cancelled: Callable[[], bool]) -> int | None:
        pause = PAUSE_MIN_SECONDS
        while (descriptor := self._try(uid)) is None:
            left = deadline - self._monotonic()
            if left <= 0 or cancelled():
                return None
            self._pause(min(pause, left))
            pause = min(2 * pause, PAUSE_MAX_SECONDS)
        return descriptor

    def _try(self, uid: str) -> int | None:
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
