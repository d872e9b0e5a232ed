"""Keys that wait for their turn: each once, some not before a time.

As client-go's rate-limited work queue (util/workqueue), for one worker.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K")


class DueQueue(Generic[K]):
    """Filled by any thread, emptied by one. `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float], *, first_seconds: float, limit_seconds: float) -> None:
        """What failed waits for `first_seconds`, doubled each time, at most `limit_seconds`."""
        self._clock = clock
        self._first, self._limit = first_seconds, limit_seconds
        self._changed = threading.Condition()
        self._due: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._closed = False

    def add(self, keys: Iterable[K]) -> None:
        """These are due now, whether or not they wait already."""
        with self._changed:
            for key in keys:
                self._due[key] = self._clock()
            self._changed.notify()

    def take(self) -> K | None:
        """The key that has been due for longest; waits for one. None when the queue is closed."""
        with self._changed:
            while not self._closed:
                now = self._clock()
                key = min(self._due, key=self._due.__getitem__, default=None)
                if key is not None and self._due[key] <= now:
                    del self._due[key]
                    return key
                self._changed.wait(None if key is None else self._due[key] - now)
            return None

    def failed(self, key: K) -> None:
        """It is to be tried again after a pause, or sooner when it is added meanwhile."""
        with self._changed:
            failures = self._failures.get(key, 0)
            self._failures[key] = failures + 1
            pause = min(self._first * 2 ** min(failures, 20), self._limit)
            self._due.setdefault(key, self._clock() + pause)

    def done(self, key: K) -> None:
        """It went well: the next failure waits for the first pause again."""
        with self._changed:
            self._failures.pop(key, None)

    def close(self) -> None:
        """End the wait of `take`."""
        with self._changed:
            self._closed = True
            self._changed.notify()
