"""Events on objects, for whoever runs `kubectl describe`.

Telling must never cost the work: callers only put a value into a bounded queue, a thread of its own writes, and what cannot be
written is counted, logged and forgotten. The same event again is counted on the first one (its series) instead of repeated.
"""

import contextlib
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import structlog

from api.kube.client import Client
from api.kube.errors import ApiError, KubeError, NotFound, TooManyRequests, Unavailable
from api.kube.paths import EVENTS
from api.kube.watch import Object
from api.timestamps import micro_time, utc_now

_log = structlog.get_logger(__name__)

NOTE_BYTES = 1024
"""The longest note (events.k8s.io/v1; the server refuses more)."""
NAME_BYTES = 128
"""The longest reason, action and reportingInstance (events.k8s.io/v1)."""
QUEUE_LENGTH = 256
KNOWN_EVENTS = 1024
"""So many different events are remembered to count repeats on."""
COUNT_SECONDS = 60.0
"""A count is written on the first repeat, then at most once in this time: a reason that comes every second costs little."""
FORGET_SECONDS = 3000.0
"""Events are deleted an hour after they were made (kube-apiserver --event-ttl), so a repeat after 50 min is a new one."""
TRIES = 3


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object an event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str | None = None
    uid: str | None = None

    def as_reference(self) -> Object:
        """An ObjectReference."""
        fields = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "namespace": self.namespace,
            "uid": self.uid,
        }
        return {field: value for field, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class _Told:
    """What makes two events the same. The note belongs to it: another note is news."""

    regarding: Regarding
    reason: str
    action: str
    note: str


@dataclass(slots=True)
class _Series:
    """An event that is written, and how often it has happened."""

    path: str
    made_at: float
    count: int = 1
    written: int = 1
    last: datetime | None = None
    written_at: float | None = None


class EventRecorder:
    """Writes events in a thread of its own. `warning` returns at once and never raises."""

    def __init__(
        self,
        client: Client,
        reporting_controller: str,
        reporting_instance: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        """`reporting_controller` is a qualified name such as lanewise.dev/controller, `reporting_instance` the pod's name."""
        self._client = client.sibling()
        self._controller = reporting_controller
        self._instance = cut(reporting_instance, NAME_BYTES)
        self._clock = clock
        self._now = now
        self._wait = wait
        self._queue: queue.Queue[tuple[_Told, datetime] | None] = queue.Queue(QUEUE_LENGTH)
        self._known: OrderedDict[_Told, _Series] = OrderedDict()
        self._lock = threading.Lock()
        self._lost = 0
        self._sequence = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def warning(self, regarding: Regarding, *, reason: str, note: str, action: str) -> None:
        """Something did not go as it should. `reason` and `action` in CamelCase; the note is for people."""
        self._put(_Told(regarding, cut(reason, NAME_BYTES), cut(action, NAME_BYTES), cut(note, NOTE_BYTES)))

    @property
    def lost(self) -> int:
        """How many could not be told: the queue was full, or the API server did not take them."""
        with self._lock:
            return self._lost

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self, timeout_seconds: float = 5.0) -> bool:
        """Write what is queued, then end; what is not written by then is lost. May be repeated."""
        self._stopping.set()
        with contextlib.suppress(queue.Full):  # the thread looks at the flag once the queue is empty
            self._queue.put_nowait(None)
        ended = True
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)
            ended = not self._thread.is_alive()
        self._client.close()
        if not ended:
            # With its connections cut it ends by itself.
            self._thread.join(1.0)
        return not self._thread.is_alive()

    def _put(self, told: _Told) -> None:
        try:
            self._queue.put_nowait((told, self._now()))
        except queue.Full:
            self._lose("the queue is full", told)

    def _run(self) -> None:
        while not (self._stopping.is_set() and self._queue.empty()):
            item = self._queue.get()
            if item is not None:
                self._guarded(*item)
        for told, series in list(self._known.items()):
            if series.count > series.written and not self._write_count(told, series, self._clock()):
                break

    def _guarded(self, told: _Told, moment: datetime) -> None:
        try:
            self._tell(told, moment)
        except Exception:  # noqa: BLE001  # one event we cannot write must not end the telling
            _log.exception("event could not be written", reason=told.reason)

    def _tell(self, told: _Told, moment: datetime) -> None:
        now = self._clock()
        series = self._known.get(told)
        if series is None or now - series.made_at >= FORGET_SECONDS:
            self._make(told, moment, now)
            return
        self._known.move_to_end(told)
        series.count += 1
        series.last = moment
        if series.written_at is None or now - series.written_at >= COUNT_SECONDS:
            self._write_count(told, series, now)

    def _make(self, told: _Told, moment: datetime, now: float) -> None:
        self._known.pop(told, None)
        # Events of objects without namespace live in "default" (client-go tools/events).
        namespace = told.regarding.namespace or "default"
        self._sequence += 1
        # Unique by time, and by sequence within one tick of the clock; a name has at most 253 characters.
        beginning = told.regarding.name[:220].rstrip("-.")
        name = f"{beginning}.{int(moment.timestamp() * 1e6):x}{self._sequence % 0x10000:04x}"
        event: Object = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": micro_time(moment),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "regarding": told.regarding.as_reference(),
            "type": "Warning",
            "reason": told.reason,
            "action": told.action,
            "note": told.note,
        }
        if not self._patiently(told, lambda: self._client.create(EVENTS.path(namespace), event)):
            return
        self._known[told] = _Series(EVENTS.path(namespace, name), now)
        while len(self._known) > KNOWN_EVENTS:
            self._known.popitem(last=False)

    def _write_count(self, told: _Told, series: _Series, now: float) -> bool:
        moment = series.last or self._now()
        patch: Object = {"series": {"count": series.count, "lastObservedTime": micro_time(moment)}}
        count = series.count
        try:
            written = self._patiently(told, lambda: self._client.merge_patch(series.path, patch))
        except NotFound:
            # Deleted early; what happens again is then told anew.
            self._make(told, moment, now)
            return True
        if written:
            series.written, series.written_at = count, now
        return written

    def _patiently(self, told: _Told, call: Callable[[], Object]) -> bool:
        """Whether it was written, after a few tries; NotFound of a patch is for the caller."""
        for attempt in range(1, TRIES + 1):
            try:
                call()
                return True
            except KubeError as error:
                if isinstance(error, NotFound) and error.call.startswith("PATCH"):
                    raise
                passing = not isinstance(error, ApiError) or isinstance(error, TooManyRequests | Unavailable)
                if not passing or attempt == TRIES or self._stopping.is_set():
                    self._lose(error.what, told)
                    return False
                asked = error.retry_after_seconds if isinstance(error, ApiError) else None
                self._wait(self._stopping, min(asked or float(attempt), 10.0))
        return False

    def _lose(self, why: str, told: _Told) -> None:
        with self._lock:
            self._lost += 1
            lost = self._lost
        # Powers of two: a long outage is a few lines, not thousands.
        if lost & (lost - 1) == 0:
            _log.warning("event lost", why=why, reason=told.reason, name=told.regarding.name, lost=lost)


def cut(text: str, limit_bytes: int) -> str:
    """At most so many bytes of UTF-8, without breaking a character; "…" tells that something is missing.

    What is no UTF-8 (a file's name in a reason, say) is escaped.
    """
    content = text.encode(errors="backslashreplace")
    if len(content) <= limit_bytes:
        return content.decode()
    kept = content[: limit_bytes - len("…".encode())]
    return f"{kept.decode(errors='ignore')}…"
