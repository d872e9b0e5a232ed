"""What a watch tells: the changes of a collection in their order, bookmarks between them, 410 when it starts too late."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cli.sandbox.apiserver.reads import not_a_version, selection
from cli.sandbox.apiserver.routes import Route, Target, count
from cli.sandbox.apiserver.statuses import ApiError, expired
from cli.sandbox.apiserver.store import Change, CompactedError, Obj, Store

Event = dict[str, Any]

DEFAULT_SECONDS = 1800
"""How long a watch lasts when the client does not say; the real server takes 30 to 60 minutes."""

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""On the bookmark after what is there already, for clients that asked for that with `sendInitialEvents` (KEP-3157)."""


class Watch:
    """One open watch. Iterate to get its events; iteration ends when its time is up or `stopping` says so."""

    def __init__(
        self,
        store: Store,
        route: Route,
        target: Target,
        *,
        bookmarks_seconds: float,
        stopping: Callable[[], bool],
        stalled: Callable[[], bool],
    ) -> None:
        self._store = store
        self._route = route
        self._chosen = selection(route, target)
        self._stopping = stopping
        self._stalled = stalled
        self._bookmarks_seconds = bookmarks_seconds if target.flag("allowWatchBookmarks") else None
        self._seconds = count(target, "timeoutSeconds") or DEFAULT_SECONDS
        asked = target.query.get("resourceVersion") or "0"
        if not asked.isdigit():
            raise ApiError(500, "", not_a_version(asked))  # not 400: seen on 1.37.2
        self._version = int(asked)
        self._initial = target.flag("sendInitialEvents")

    def __iter__(self) -> Iterator[Event]:
        if self._version == 0 or self._initial:
            yield from self._already_there()
        if self._initial:
            yield self._bookmark({INITIAL_EVENTS_END: "true"})
        ends = time.monotonic() + self._seconds
        bookmark_due = time.monotonic() + (self._bookmarks_seconds or 0)
        while True:
            with self._store.changed:
                wake_at = ends if self._bookmarks_seconds is None else min(ends, bookmark_due)
                while not self._ready() and time.monotonic() < wake_at:
                    self._store.changed.wait(timeout=wake_at - time.monotonic())
                if self._stopping():
                    return
                try:
                    changes = [] if self._stalled() else self._store.since(self._version)
                    newest = self._store.version
                except CompactedError as gone:
                    yield {"type": "ERROR", "object": expired(str(gone)).body()}
                    return
            for change in changes:
                yield from self._told(change)
            if not self._stalled():
                self._version = max(self._version, newest)
            now = time.monotonic()
            if self._bookmarks_seconds is not None and now >= min(bookmark_due, ends) and not self._stalled():
                yield self._bookmark()
                bookmark_due = now + self._bookmarks_seconds
            elif now >= bookmark_due:
                bookmark_due = now + (self._bookmarks_seconds or 0)
            if now >= ends:
                return

    def _ready(self) -> bool:
        return self._stopping() or (self._store.version > self._version and not self._stalled())

    def _already_there(self) -> Iterator[Event]:
        with self._store.lock:
            pairs = self._store.under(self._route.kind.storage, self._route.namespace)
            self._version = self._store.version
        for _, obj in pairs:
            if self._chosen(obj):
                yield self._event("ADDED", obj)

    def _told(self, change: Change) -> Iterator[Event]:
        """An object that stops matching the selectors is reported as deleted, one that starts as added."""
        if change.key.resource != self._route.kind.storage or self._route.namespace not in ("", change.key.namespace):
            return
        was = change.before is not None and self._chosen(change.before)
        now = change.after is not None and self._chosen(change.after)
        if now and change.after is not None:
            yield self._event("MODIFIED" if was else "ADDED", change.after)
        elif was and change.before is not None:
            version = {"resourceVersion": str(change.version)}
            gone = change.last if change.after is None else change.before
            yield self._event("DELETED", {**gone, "metadata": {**gone["metadata"], **version}})

    def _bookmark(self, annotations: Mapping[str, str] | None = None) -> Event:
        kind = self._route.kind
        meta: Obj = {"resourceVersion": str(self._version), **({"annotations": annotations} if annotations else {})}
        return {
            "type": "BOOKMARK",
            "object": {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta},
        }

    def _event(self, what: str, obj: Mapping[str, Any]) -> Event:
        return {"type": what, "object": self._route.kind.shown(obj)}
