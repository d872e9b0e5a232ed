"""A local copy of some objects of the API server, kept by list and watch.

Every way the stream can end is met here, because no library met them all (measured with a scripted server, 2026-11: hot
loops after 410, 403 or a drop, or silence for ever). The rules are those of client-go's tools/cache/reflector.go.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

import structlog

from api.kube.backoff import Backoff
from api.kube.client import PAGE_SIZE, SILENCE_SECONDS, Client
from api.kube.errors import ApiError, Closed, Garbled, KubeError, Unreachable, stale_version
from api.kube.watch import Object
from api.kube.wire import Query

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

_log = structlog.get_logger(__name__)


class Change(StrEnum):
    """What happened to an object."""

    ADDED = "Added"
    MODIFIED = "Modified"
    DELETED = "Deleted"


class Handler(Protocol[T_contra]):
    """Who wants to know. Called by the reflector's thread, one call at a time; what it raises is logged and forgotten."""

    def on_change(self, change: Change, old: T_contra | None, new: T_contra | None) -> None:
        """`old` is None for Added, `new` for Deleted."""

    def on_synced(self) -> None:
        """The first list has been delivered. Called once."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How a reflector paces itself."""

    silence_seconds: float = SILENCE_SECONDS
    """A watch is opened anew after this long without event or bookmark: if the server is gone, that tells."""
    watch_seconds: tuple[float, float] = (300.0, 600.0)
    """The server is asked to end each watch after a time between these, so that watchers spread over API servers again."""
    short_seconds: float = 5.0
    """A watch that ends sooner counts as a failure even when it ends cleanly: resuming at once would be a hot loop."""
    page_size: int = PAGE_SIZE


@dataclass(frozen=True, slots=True)
class State:
    """How the reflector is doing."""

    synced: bool = False
    """The first list is in. It stays true through later failures: the copy is then old, not absent."""
    last_error: str = ""
    """One sentence while something is wrong, empty while a watch is open."""
    outages: int = 0
    """How often a list or watch failed, so that something may have been missed. Watches that end as they should, are silent
    in a quiet cluster, or have to list anew for their age are none: the next one goes on where they were."""
    lists: int = 0
    """How many of these had to list everything."""


@dataclass(frozen=True, slots=True)
class _Read(Generic[T]):
    """One object after the transform: its value, None when it is of no interest, unread when the transform failed."""

    key: str
    value: T | None = None
    unread: bool = field(default=False)


class Reflector(Generic[T]):
    """Keeps a copy of the objects at `path`, transformed, and tells a handler of each change. One thread, started once.

    `transform` turns an object into what is kept, or into None to leave it out; where it raises, the object's last good value
    stays. Objects that compare equal after it are no change.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        *,
        handler: Handler[T],
        transform: Callable[[Object], T | None],
        query: Query | None = None,
        timing: Timing | None = None,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        """`query` holds fieldSelector and labelSelector. `wait` waits for an event at most so many seconds."""
        self._client = client.sibling()
        self._path = path
        self._query = dict(query or {})
        self._handler = handler
        self._transform = transform
        self._timing = timing or Timing()
        self._backoff = backoff or Backoff(clock=clock, chance=chance)
        self._clock = clock
        self._chance = chance
        self._wait = wait
        self._lock = threading.Lock()
        self._store: dict[str, T] = {}
        self._state = State()
        self._version: str | None = None
        self._troubled = False
        self._stopping = threading.Event()
        self._synced = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"reflector {path}", daemon=True)
        self._log = _log.bind(path=path)

    # For anybody.

    def start(self) -> None:
        """Begin to list and watch."""
        self._thread.start()

    def stop(self, timeout_seconds: float = 5.0) -> bool:
        """End it, whatever it waits for; False when a handler still runs after `timeout_seconds`. May be repeated."""
        self._stopping.set()
        self._client.close()
        if self._thread.ident is None or self._thread is threading.current_thread():
            return True
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def wait_synced(self, timeout_seconds: float) -> bool:
        """Wait until the first list has been delivered; False if it was not in time."""
        return self._synced.wait(timeout_seconds)

    @property
    def state(self) -> State:
        """How it is doing now."""
        with self._lock:
            return self._state

    def snapshot(self) -> Mapping[str, T]:
        """All that is kept, by `namespace/name`, or name where the kind has no namespace."""
        with self._lock:
            return dict(self._store)

    # In its thread.

    def _run(self) -> None:
        while not self._stopping.is_set():
            delay = self._pass()
            if delay and not self._stopping.is_set():
                self._wait(self._stopping, delay)
        self._client.close()

    def _pass(self) -> float:
        """List if need be, then watch until the watch ends. Returns for how many seconds to leave the server alone."""
        began = self._clock()
        error: KubeError | None = None
        try:
            if self._version is None:
                self._version = self._list()
                began = self._clock()
            self._follow(self._version)
        except Closed:
            return 0.0
        except KubeError as raised:
            error = raised
        except Exception as raised:  # noqa: BLE001  # the edge of a pass: a thread that dies leaves an old copy for ever
            error = Garbled(self._path, f"{type(raised).__name__}: {raised}")
            self._version = None
        if error is not None and stale_version(error):
            self._version = None
        lasted = self._clock() - began
        # A version gets too old in quiet times, which is nobody's fault; soon after a list it is.
        harmless = error is None or stale_version(error)
        self._note(error, harmless=harmless, lasted=lasted)
        if harmless and lasted >= self._timing.short_seconds:
            return 0.0
        asked = error.retry_after_seconds if isinstance(error, ApiError) else None
        return max(self._backoff.delay_seconds(), asked or 0.0)

    def _list(self) -> str:
        listing = self._client.list_pages(self._path, self._query, limit=self._timing.page_size, keep=self._read)
        changes: list[tuple[Change, T | None, T | None]] = []
        fresh: dict[str, T] = {}
        with self._lock:
            for read in listing.items:
                old = self._store.get(read.key)
                new = old if read.unread else read.value
                if new is not None:
                    fresh[read.key] = new
            for key, old in self._store.items():
                if key not in fresh:
                    changes.append((Change.DELETED, old, None))
            for key, new in fresh.items():
                old = self._store.get(key)
                if old is None:
                    changes.append((Change.ADDED, None, new))
                elif old != new:
                    changes.append((Change.MODIFIED, old, new))
            self._store = fresh
            first = not self._state.synced
            self._state = replace(self._state, synced=True, lists=self._state.lists + 1)
        for change, old, new in changes:
            self._tell(change, old, new)
        if first:
            self._synced.set()
            self._guarded(self._handler.on_synced)
        return listing.resource_version

    def _follow(self, version: str) -> None:
        low, high = self._timing.watch_seconds
        query: Query = {
            **self._query,
            "resourceVersion": version,
            "timeoutSeconds": int(low + (high - low) * self._chance()),
        }
        with self._client.watch(self._path, query, read_timeout_seconds=self._timing.silence_seconds) as watch:
            self._set_error("")
            try:
                for kind, item in watch:
                    self._say_recovered()
                    self._take(kind, item)
            except Unreachable as error:
                # A quiet cluster sends nothing, not even bookmarks. If it is the server that is gone, the next watch says so.
                if error.cause != "silent":
                    raise
            except (ApiError, Garbled):
                # What went wrong inside the stream may go wrong again from the same version.
                self._version = None
                raise

    def _take(self, kind: str, item: Object) -> None:
        meta = item.get("metadata")
        version = meta.get("resourceVersion") if isinstance(meta, dict) else None
        if not isinstance(version, str) or not version:
            raise Garbled(f"WATCH {self._path}", f"a {kind} event has no resourceVersion")
        if kind in ("ADDED", "MODIFIED", "DELETED"):
            self._put(self._read(item), deleted=kind == "DELETED")
        # Other kinds carry no object: bookmarks, and what a later release may add.
        self._version = version

    def _put(self, read: _Read[T], *, deleted: bool) -> None:
        with self._lock:
            old = self._store.get(read.key)
            new = None if deleted else old if read.unread else read.value
            if new is None:
                self._store.pop(read.key, None)
            else:
                self._store[read.key] = new
        if old is None and new is not None:
            self._tell(Change.ADDED, None, new)
        elif old is not None and new is None:
            self._tell(Change.DELETED, old, None)
        elif old != new:
            self._tell(Change.MODIFIED, old, new)

    def _read(self, item: Object) -> _Read[T]:
        key = key_of(item)
        try:
            return _Read(key, self._transform(item))
        except Exception as error:  # noqa: BLE001  # one object that we cannot read must not hide the others
            self._log.warning("object could not be read", key=key, why=f"{type(error).__name__}: {error}")
            return _Read(key, unread=True)

    def _tell(self, change: Change, old: T | None, new: T | None) -> None:
        self._guarded(lambda: self._handler.on_change(change, old, new))

    def _guarded(self, call: Callable[[], None]) -> None:
        if self._stopping.is_set():
            return
        try:
            call()
        except Exception:  # noqa: BLE001  # a handler's mistake must not stop the copy
            self._log.exception("handler failed")

    def _set_error(self, sentence: str) -> None:
        with self._lock:
            outages = self._state.outages + bool(sentence)
            self._state = replace(self._state, last_error=sentence, outages=outages)

    def _note(self, error: KubeError | None, *, harmless: bool, lasted: float) -> None:
        if lasted >= self._timing.short_seconds:
            self._say_recovered()
        if error is None or harmless:
            self._set_error("")
            return
        self._set_error(error.what)
        if not self._troubled:
            self._troubled = True
            self._log.warning("watch interrupted", why=error.what, remedy=error.remedy)

    def _say_recovered(self) -> None:
        # Not when the watch opens: one that is dropped again at once would be said over and over.
        if self._troubled:
            self._troubled = False
            self._log.info("watch recovered")


def key_of(item: Object) -> str:
    """`namespace/name` of an object, or its name where it has no namespace. Raises Garbled where it has no name."""
    meta = item.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    if not isinstance(meta, dict) or not isinstance(name, str):
        raise Garbled("object", "it has no metadata.name")
    namespace = meta.get("namespace")
    return f"{namespace}/{name}" if namespace else name
