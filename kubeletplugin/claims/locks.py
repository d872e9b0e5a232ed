"""One lock for each claim, between the threads and the processes of a node.

Two plugin processes serve at once during a rolling update, so the locks are of a file: one file for all, in which each claim
has a byte of its own, by its UID. Only calls for the same claim wait for each other, nothing slow is ever done under a lock
that another claim needs, and a lock costs no disk: it needs no file of its own, so that a release works where there is room
for none. The locks are those of the open file ("open file description locks", fcntl(2)): they end with the process, and
threads do not share them by accident as they would POSIX's.

The file also counts the processes that ever opened it. So one that was alone can know that what it has seen put in order still
is: a claim can be in disorder only where a process was cut off in the middle.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import struct
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

FILE = "claims"
PATIENCE_SECONDS = 30.0
"""How long a call waits for an earlier one of the same claim; the kubelet itself gives up after 45 s, and tries again."""
PAUSE_MIN_SECONDS, PAUSE_MAX_SECONDS = 0.005, 0.5
"""Between two looks at a lock that another process has; doubling, so that short waits are short and long ones cheap."""

_COUNT = struct.Struct("=Q")
"""Of the processes that opened the file; its first bytes."""
_COUNTING_TRIES = 1000
"""A millisecond apart. Counting takes microseconds; who was stopped meanwhile must not keep others from an answer."""
_PRESENCE = 8
"""The byte on which each of them keeps a shared lock."""
_FIRST = 16
"""Where the claims' bytes begin. Locks may lie beyond the end of a file."""
_FLOCK = struct.Struct("hhqqi4x")
"""`struct flock` of 64-bit Linux: type, whence, start, length, process."""


class LockTimeout(Exception):  # noqa: N818  # an answer, no fault of ours
    """The lock was not free in time."""


@dataclass(slots=True)
class Lock:
    """A claim's lock, while it is held."""

    in_order: bool
    """Whether it is certain that no earlier call for the claim was cut off in the middle and left more than it should have."""
    disorder: bool = False
    """To be set by an owner that leaves something in disorder."""


class ClaimLocks:
    """Locks by claim UID."""

    def __init__(
        self,
        directory: Path,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        """Touches no disk."""
        self._path = f"{directory}/{FILE}"
        self.patience_seconds = patience_seconds
        self._monotonic = monotonic
        self._pause = pause or threading.Event().wait
        self._guard = threading.Lock()
        self._threads: dict[str, threading.Lock] = {}
        self._users: Counter[str] = Counter()
        self._file: _File | None = None
        self._orderly: int | None = None
        """The count at which all claims were in order."""
        self._disorderly: set[str] = set()

    @contextmanager
    def held(self, uid: str, *, cancelled: Callable[[], bool]) -> Iterator[Lock]:
        """Wait for the claim's lock and keep it. LockTimeout when it stays taken or the caller goes; OSError of the disk."""
        deadline = self._monotonic() + self.patience_seconds
        with self._among_threads(uid, self.patience_seconds) as mine:
            file = self._wait(uid, deadline, cancelled) if mine else None
            if file is None:
                raise LockTimeout
            with self._kept(uid, file) as lock:
                yield lock

    @contextmanager
    def if_free(self, uid: str) -> Iterator[Lock | None]:
        """Take the lock if nobody has it, None if somebody does; never waits, so it may be asked while another lock is held."""
        with self._among_threads(uid, 0) as mine:
            file = self._try(uid) if mine else None
            if file is None:
                yield None
                return
            with self._kept(uid, file) as lock:
                yield lock

    def alone(self) -> int | None:
        """A number for `all_in_order`, None while another process has the file open too. OSError of the disk."""
        file = self._opened()
        count = file.count()
        return count if file.is_alone() else None

    def all_in_order(self, since: int | None) -> None:
        """All claims were looked at, and put in order, after `alone` said so."""
        self._orderly = since

    @contextmanager
    def _kept(self, uid: str, file: "_File") -> Iterator[Lock]:
        before = uid in self._disorderly
        lock = Lock(in_order=False)
        try:
            lock.in_order = not before and self._orderly is not None and file.count() == self._orderly
            yield lock
        except BaseException as error:
            # A refusal may come before anything was touched. What is no Exception ends the process: nothing in it runs on as
            # it was meant to.
            lock.disorder = lock.disorder or before or not isinstance(error, Exception)
            raise
        finally:
            (self._disorderly.add if lock.disorder else self._disorderly.discard)(uid)
            file.unlock(_byte_of(uid))

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

    def _wait(self, uid: str, deadline: float, cancelled: Callable[[], bool]) -> "_File | None":
        pause = PAUSE_MIN_SECONDS
        while (file := self._try(uid)) is None:
            left = deadline - self._monotonic()
            if left <= 0 or cancelled():
                return None
            self._pause(min(pause, left))
            pause = min(2 * pause, PAUSE_MAX_SECONDS)
        return file

    def _try(self, uid: str) -> "_File | None":
        """The file in which the claim's byte is locked now, None while another process has it."""
        while True:
            file = self._opened()
            if not file.lock(_byte_of(uid)):
                return None
            if file.is_at(self._path):
                return file
            file.unlock(_byte_of(uid))  # removed between our two looks: it locks nothing any more

    def _opened(self) -> "_File":
        """The file that is in its place now, opened once."""
        with self._guard:
            if self._file is None or not self._file.is_at(self._path):
                self._file = _File(self._path)
            return self._file


class _File:
    """The open file. Closed when nobody has it any more: a lock in it may outlive its place."""

    def __init__(self, path: str) -> None:
        self._descriptor = _open(path)
        # Not at exit: threads are at work until the process is no more, and so long they keep their locks.
        weakref.finalize(self, os.close, self._descriptor).atexit = False
        self._set(fcntl.F_RDLCK, _PRESENCE)  # first, so that who is counted and not seen has ended
        for _ in range(_COUNTING_TRIES):
            if self.lock(0):
                break
            time.sleep(0.001)
        else:
            raise OSError(errno.ETIMEDOUT, "another process keeps its first byte locked", path)
        try:
            with contextlib.suppress(OSError):  # on a full disk; then nobody can count on being alone
                before = self.count() or secrets.randbits(
                    32
                )  # a number remembered of a file that was removed says nothing
                os.pwrite(self._descriptor, _COUNT.pack(before + 1), 0)
        finally:
            self.unlock(0)

    def count(self) -> int:
        found = os.pread(self._descriptor, _COUNT.size, 0)
        return _COUNT.unpack(found)[0] if len(found) == _COUNT.size else 0

    def is_alone(self) -> bool:
        """Whether no other process has it open, and all that ever had are counted."""
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _PRESENCE, 1, 0)
        answer = fcntl.fcntl(self._descriptor, fcntl.F_OFD_GETLK, asked)
        return bool(_FLOCK.unpack(answer)[0] == fcntl.F_UNLCK) and self.count() > 0

    def is_at(self, path: str) -> bool:
        try:
            there = os.stat(path)  # noqa: PTH116  # as text: a Path costs more than the call
        except OSError:
            return False
        mine = os.fstat(self._descriptor)
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def lock(self, byte: int) -> bool:
        """Whether it could be had at once."""
        try:
            self._set(fcntl.F_WRLCK, byte)
        except BlockingIOError:
            return False
        return True

    def unlock(self, byte: int) -> None:
        self._set(fcntl.F_UNLCK, byte)

    def _set(self, kind: int, byte: int) -> None:
        fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0))


def _byte_of(uid: str) -> int:
    """Of 2^62, so that two claims of a node never have the same."""
    return _FIRST + (int.from_bytes(blake2b(uid.encode(), digest_size=8).digest(), "big") >> 2)


def _open(path: str) -> int:
    """The file, made where it is missing. What somebody put in its place is moved away, for pods must be able to end."""
    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno not in {errno.EISDIR, errno.ELOOP, errno.ENXIO}:
            raise
    else:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)  # a FIFO or a device: it locks, and counts nothing
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, f"{path}.{secrets.token_hex(4)}.foreign")  # noqa: PTH104  # as above
    return os.open(path, flags, 0o600)
