"""Whose turn it is to use NVML: discovery's, which must open it anew to see new GPUs, or the watch's, which holds it open.

NVML counts how often it was opened, so while one holds it the other would see what the first saw.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from api.refusals import Refused

PATIENCE_SECONDS = 15.0
"""How long discovery waits for the watch. It leaves within a second, unless the driver does not answer."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """A call of the watch's does not return."""

    seconds: float

    @property
    def what(self) -> str:
        return f"NVML has not answered for {self.seconds:.0f} s"

    @property
    def remedy(self) -> str:
        return "see what the kernel's log says of the GPU driver; the plugin looks again by itself"


class Turns:
    """One user at a time. Discovery goes first."""

    def __init__(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._patience = patience_seconds
        self._news = threading.Condition()
        self._busy = False
        self._wanted = 0
        self._poked = False
        self._ended = False

    @contextmanager
    def of_discovery(self) -> Iterator[None]:
        """Refused(NoAnswer) when the watch does not leave."""
        with self._news:
            self._wanted += 1
            self._news.notify_all()
            try:
                if not self._news.wait_for(lambda: not self._busy, self._patience):
                    raise Refused(NoAnswer(self._patience))
                self._busy = True
            finally:
                self._wanted -= 1
        with self._left():
            yield

    @contextmanager
    def of_the_watch(self) -> Iterator[None]:
        """Begins when discovery is done, or when all is over; see `leaving`."""
        with self._news:
            self._news.wait_for(lambda: self._ended or not (self._busy or self._wanted))
            if self._ended:
                yielded = False
            else:
                self._busy = yielded = True
        if not yielded:
            yield
            return
        with self._left():
            yield

    def leaving(self) -> bool:
        """Whether the watch must end its turn."""
        with self._news:
            return self._ended or self._wanted > 0

    def ended(self) -> bool:
        with self._news:
            return self._ended

    def rest(self, seconds: float) -> None:
        """Wait, but no longer than until the watch is poked or must leave."""
        with self._news:
            self._news.wait_for(lambda: self._ended or self._wanted > 0 or self._poked, seconds)
            self._poked = False

    def poke(self) -> None:
        """End a rest."""
        with self._news:
            self._poked = True
            self._news.notify_all()

    def end(self) -> None:
        """No more turns for the watch."""
        with self._news:
            self._ended = True
            self._news.notify_all()

    @contextmanager
    def _left(self) -> Iterator[None]:
        try:
            yield
        finally:
            with self._news:
                self._busy = False
                self._news.notify_all()
