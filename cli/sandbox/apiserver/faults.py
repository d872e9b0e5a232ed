"""Faults on order: requests that fail, hang or lose their connection, watches that fall silent.

A test says what should go wrong next; the HTTP handler asks here before and while it answers.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Hold:
    """Requests that wait: `reached` is set when the first one is here, `release` lets all go on."""

    reached: threading.Event = field(default_factory=threading.Event)
    _go: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Let the waiting requests go on, and those that come later pass."""
        self._go.set()

    def wait(self) -> None:
        """Stay until released; the handler calls this."""
        self.reached.set()
        self._go.wait(timeout=60)


@dataclass(frozen=True, slots=True)
class Answer:
    """A refusal to send instead of the real answer."""

    status: int
    reason: str
    message: str
    retry_after: int | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection. `after_write` first does what was asked: the client cannot know that it happened."""

    after_write: bool = False


@dataclass(slots=True)
class _Rule:
    method: re.Pattern[str]
    path: re.Pattern[str]
    times: int
    what: Answer | Drop | Hold


REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Faults:
    """What should go wrong. Methods and paths are regular expressions, matched from the start of the whole path."""

    def __init__(self, wake_watches: Callable[[], None]) -> None:
        self._wake_watches = wake_watches
        self._lock = threading.Lock()
        self._rules: list[_Rule] = []
        self._stalled = threading.Event()
        self.dropped_fields: frozenset[str] = frozenset()

    def fail(
        self,
        status: int,
        *,
        times: int = 1,
        method: str = "",
        path: str = "",
        reason: str = "",
        message: str = "",
        retry_after: int | None = None,
    ) -> None:
        """Answer the next `times` matching requests with this HTTP status (and Retry-After, in seconds)."""
        answer = Answer(status, reason or REASONS.get(status, ""), message or "ordered to fail", retry_after)
        self._add(answer, times, method, path)

    def drop(self, *, times: int = 1, method: str = "", path: str = "", after_write: bool = False) -> None:
        """Close the connection of the next `times` matching requests without an answer."""
        self._add(Drop(after_write), times, method, path)

    def hold(self, *, times: int = 1_000_000, method: str = "", path: str = "") -> Hold:
        """Keep matching requests waiting until the result is released."""
        hold = Hold()
        self._add(hold, times, method, path)
        return hold

    def stall_watches(self) -> None:
        """Open watches stay open and say nothing, bookmarks included: a peer that is gone without a FIN."""
        self._stalled.set()

    def resume_watches(self) -> None:
        """Watches speak again, from where they stopped."""
        self._stalled.clear()
        self._wake_watches()

    def drop_fields(self, *names: str) -> None:
        """From now on writes lose fields of these names in spec and status, as with a feature gate off."""
        self.dropped_fields = frozenset(names)

    @property
    def watches_stalled(self) -> bool:
        return self._stalled.is_set()

    def clear(self) -> None:
        """Nothing goes wrong any more; what is on hold goes on."""
        with self._lock:
            rules, self._rules = self._rules, []
        _release(rules)
        self.resume_watches()
        self.dropped_fields = frozenset()

    def release_holds(self) -> None:
        """Let whatever is on hold go on; the server calls this when it stops."""
        with self._lock:
            _release(self._rules)
            self._rules = [r for r in self._rules if not isinstance(r.what, Hold)]

    def next_for(self, method: str, path: str) -> Answer | Drop | Hold | None:
        """What goes wrong with this request; the handler calls this once for each."""
        with self._lock:
            for rule in self._rules:
                if rule.method.match(method) and rule.path.match(path):
                    rule.times -= 1
                    if rule.times == 0:
                        self._rules.remove(rule)
                    return rule.what
        return None

    def _add(self, what: Answer | Drop | Hold, times: int, method: str, path: str) -> None:
        with self._lock:
            self._rules.append(_Rule(re.compile(method), re.compile(path), times, what))


def _release(rules: Iterable[_Rule]) -> None:
    for rule in rules:
        if isinstance(rule.what, Hold):
            rule.what.release()
