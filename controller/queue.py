"""Which key is worked on next: each at most once at a time, again after a while when that did not work."""

import heapq
import random
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K", bound=str | tuple[str, ...])
"""Keys can be compared: of two that are due at one moment the lesser comes first."""

RETRY_SECONDS = 0.5
RETRY_MAX_SECONDS = 60.0


class WorkQueue(Generic[K]):
    """Keys waiting for a worker. Safe from several threads.

    A key added while it is being worked on is handed out again afterwards; a key added twice is handed out once.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        *,
        retry_seconds: float = RETRY_SECONDS,
        retry_max_seconds: float = RETRY_MAX_SECONDS,
    ) -> None:
        """What failed waits for `retry_seconds`, doubled each time, at most `retry_max_seconds`; `jitter` (0 to 1) takes up to
        half of that away."""
        self._retry_seconds, self._retry_max_seconds = retry_seconds, retry_max_seconds
        self._clock = clock
        self._jitter = jitter
        self._changed = threading.Condition()
        self._ready: dict[K, None] = {}
        self._later: list[tuple[float, K]] = []
        self._due: dict[K, float] = {}
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}
        self._closed = False

    def add(self, key: K) -> None:
        """Look at it as soon as a worker is free."""
        with self._changed:
            self._add(key)

    def add_at(self, key: K, moment: float) -> None:
        """Look at it at that moment of the clock; an earlier moment asked for before stays."""
        with self._changed:
            if self._due.get(key, moment + 1) > moment:
                self._due[key] = moment
                heapq.heappush(self._later, (moment, key))
                self._changed.notify()

    def take(self, timeout_seconds: float | None = None) -> K | None:
        """The next key, to be given back by `done`; None when closed or when there was none in time."""
        end = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        with self._changed:
            while not self._closed:
                self._promote()
                if self._ready:
                    key = next(iter(self._ready))
                    del self._ready[key]
                    self._working.add(key)
                    return key
                waits = [self._later[0][0] - self._clock()] if self._later else []
                if end is not None:
                    left = end - time.monotonic()
                    if left <= 0:
                        return None
                    waits.append(left)
                self._changed.wait(max(min(waits), 0.001) if waits else None)
            return None

    def done(self, key: K, *, retry: bool = False) -> None:
        """The worker is finished with it; with `retry` it comes again after a growing while."""
        with self._changed:
            self._working.discard(key)
            if key in self._again:
                self._again.discard(key)
                self._add(key)
            if not retry:
                self._failures.pop(key, None)
                return
            failures = self._failures.get(key, 0)
            self._failures[key] = failures + 1
            delay = min(self._retry_seconds * 2.0 ** min(failures, 16), self._retry_max_seconds)
        self.add_at(key, self._clock() + delay * (0.5 + self._jitter() / 2))

    def close(self) -> None:
        """Let all workers go."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _add(self, key: K) -> None:
        if key in self._working:
            self._again.add(key)
        elif key not in self._ready:
            self._ready[key] = None
            self._changed.notify()

    def _promote(self) -> None:
        now = self._clock()
        while self._later and self._later[0][0] <= now:
            moment, key = heapq.heappop(self._later)
            if self._due.get(key) == moment:
                del self._due[key]
                self._add(key)
