"""The calls we make to the API server: raw objects in, raw objects out.

Typed models are left out on purpose: they cost 35 MB and drop fields newer than themselves, which a read, change and
write would then erase. Who reads an object turns it into values of ours.
"""

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Self, TypeVar, cast
from urllib.parse import urlsplit

from urllib3 import BaseHTTPResponse, HTTPConnectionPool, Timeout
from urllib3 import exceptions as http

from api.kube.connections import Lines, pool_for
from api.kube.errors import (
    Closed,
    Garbled,
    Gone,
    TooManyRequests,
    Unavailable,
    Unreachable,
    from_answer,
    from_transport,
)
from api.kube.server import Server
from api.kube.tls import context_for
from api.kube.watch import Object, Watch
from api.kube.wire import (
    APPLY_PATCH,
    ERROR_BYTES,
    JSON,
    MERGE_PATCH,
    REPEATS,
    Query,
    decoded,
    patience,
    query_text,
)
from api.refusals import Refused

T = TypeVar("T")

PAGE_SIZE = 500
"""What kubectl and client-go ask for in one page."""
SILENCE_SECONDS = 90.0
"""How long a watch may say nothing. Bookmarks come about every minute (apiserver, cacher), but only once something has
happened since the watch began, so silence for longer is either a dead connection or a quiet cluster."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A whole list, as of one version."""

    items: tuple[T, ...]
    resource_version: str


class Client:
    """Calls to one API server. Safe from several threads.

    Every call raises a KubeError of `api.kube.errors`; none waits longer than its timeout for each answer. A 401 makes it
    read the token again and try once more. Calls that may be carried out twice without harm are repeated when the server
    answers 429 or 503 with Retry-After, and once when a kept connection turns out to be dead; POST and merge patches never.
    """

    def __init__(
        self,
        server: Server,
        *,
        user_agent: str,
        timeout_seconds: float = 10.0,
        pool_size: int = 4,
        answered: Callable[[str, str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        """`answered` hears how each request ended, repeats included: its verb (an HTTP method, or WATCH), and the status in
        digits or the cause that an Unreachable would have. `pause` waits that many seconds; by default it returns early when
        the client is closed. Raises Refused when the server's certificates cannot be used."""
        self.server = server
        self._user_agent = user_agent
        self._timeout_seconds = timeout_seconds
        self._pool_size = pool_size
        self._answered = answered or (lambda *_: None)
        self._clock = clock
        self._given_pause = pause
        self._lines = Lines()
        self._pause = pause or self._lines.cut.wait
        self._prefix = urlsplit(server.url).path.rstrip("/")
        self._pool = self._fresh_pool()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sibling(self, *, pool_size: int = 1) -> "Client":
        """Another client for the same server, to be closed by itself."""
        return Client(
            self.server,
            user_agent=self._user_agent,
            timeout_seconds=self._timeout_seconds,
            pool_size=pool_size,
            answered=self._answered,
            clock=self._clock,
            pause=self._given_pause,
        )

    def close(self) -> None:
        """Cut all connections. Calls under way in other threads end with Closed or Unreachable, later ones with Closed."""
        self._lines.hang_up()
        self._pool.close()

    # Reading.

    def get(self, path: str, query: Query | None = None, *, timeout_seconds: float | None = None) -> Object:
        """One object, or one page of a list. `timeout_seconds` bounds the whole call, waits and repeats included."""
        return self._call("GET", path, query, timeout_seconds=timeout_seconds, repeatable=True)

    def text(self, path: str) -> str:
        """An answer that is no JSON, such as the server's own /metrics."""
        left = Timeout(connect=self._timeout_seconds, read=self._timeout_seconds)
        response = self._exchange("GET", path, None, None, JSON, left, accept="text/plain")
        if response.status != 200:
            raise from_answer(f"GET {path}", response.status, response.data, response.headers.get("Retry-After"))
        return response.data.decode("utf-8", "replace")

    def version(self) -> Object:
        """What the server says of itself at /version."""
        return self.get("/version")

    def list_pages(
        self,
        path: str,
        query: Query | None = None,
        *,
        limit: int = PAGE_SIZE,
        keep: Callable[[Object], T] = cast("Callable[[Object], T]", lambda item: item),  # noqa: B008  # pure
    ) -> Listing[T]:
        """All objects, page by page; of each only what `keep` makes of it is held, so that memory follows the result.

        A continue token that has expired starts the list again, the second time in one piece, which cannot expire.
        Items get the kind and apiVersion that lists of built-in kinds leave out, so that they equal those of a watch.
        """
        try:
            return self._list(path, query or {}, limit, keep)
        except Gone:
            with contextlib.suppress(Gone):
                return self._list(path, query or {}, limit, keep)
        return self._list(path, query or {}, 0, keep)

    def watch(self, path: str, query: Query | None = None, *, read_timeout_seconds: float = SILENCE_SECONDS) -> Watch:
        """The changes from `resourceVersion` in `query` on, and bookmarks. Returns when the server has taken the request.

        `read_timeout_seconds` is how long the server may be silent before Unreachable is raised.
        """
        asked = {"watch": True, "allowWatchBookmarks": True, **(query or {})}
        timeout = Timeout(connect=self._timeout_seconds, read=read_timeout_seconds)
        call = f"WATCH {path}"
        response = self._exchange("GET", path, asked, None, JSON, timeout, stream=True)
        if response.status != 200:
            try:
                body = response.read(ERROR_BYTES)
            except http.HTTPError as error:
                raise from_transport(self.server.url, error) from error
            finally:
                response.close()
            raise from_answer(call, response.status, body, response.headers.get("Retry-After"))
        return Watch(response, call=call, server=self.server.url, lines=self._lines)

    # Writing.

    def create(self, path: str, obj: Object, *, timeout_seconds: float | None = None) -> Object:
        """Make a new object in the collection at `path`. AlreadyExists if it is there."""
        return self._call("POST", path, None, obj, timeout_seconds=timeout_seconds)

    def replace(self, path: str, obj: Object, *, timeout_seconds: float | None = None) -> Object:
        """Write the whole object. Conflict if its resourceVersion is not the stored one."""
        versioned = bool(obj.get("metadata", {}).get("resourceVersion"))
        # Without a version the repeat could undo what somebody wrote in between.
        return self._call("PUT", path, None, obj, timeout_seconds=timeout_seconds, repeatable=versioned)

    def delete(
        self,
        path: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
    ) -> Object:
        """Delete an object, only if it still is the one meant. Conflict if it is not, NotFound if there is none. With
        `grace_seconds` 0 a pod is gone at once; whoever says so knows that it does not run.

        After an answer was lost a repeat may find the object gone: NotFound then means done, as it mostly does.
        """
        wanted = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {field: value for field, value in wanted.items() if value is not None}
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions:
            options["preconditions"] = preconditions
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        return self._call("DELETE", path, None, options, repeatable=True)

    def delete_collection(self, path: str, query: Query) -> Object:
        """Delete the objects of a collection that the selectors of `query` pick. What the server answers: a list of them."""
        return self._call("DELETE", path, query, {"apiVersion": "v1", "kind": "DeleteOptions"}, repeatable=True)

    def merge_patch(self, path: str, patch: Object) -> Object:
        """Change the given fields (RFC 7396) of an object or, by its path, of a subresource such as status."""
        return self._call("PATCH", path, None, patch, content_type=MERGE_PATCH)

    def apply(self, path: str, obj: Object, *, field_manager: str, force: bool = False) -> Object:
        """Server-side apply: own the given fields, create the object if need be. Conflict if others own them, unless forced."""
        query: Query = {"fieldManager": field_manager, "force": force}
        return self._call("PATCH", path, query, obj, content_type=APPLY_PATCH, repeatable=True)

    # How.

    def _list(self, path: str, query: Query, limit: int, keep: Callable[[Object], T]) -> Listing[T]:
        items: list[T] = []
        version, token = "", ""
        while True:
            page = self.get(
                path, {**query, **({"limit": limit} if limit else {}), **({"continue": token} if token else {})}
            )
            meta, found = page.get("metadata"), page.get("items") or []
            if not isinstance(meta, dict) or not isinstance(found, list):
                raise Garbled(f"GET {path}", "the answer is no list")
            missing = {"apiVersion": page.get("apiVersion"), "kind": str(page.get("kind", "")).removesuffix("List")}
            items += [keep({**missing, **item}) for item in found]
            version = version or str(meta.get("resourceVersion") or "")
            token = str(meta.get("continue") or "")
            if not token:
                return Listing(tuple(items), version)

    def _call(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: Object | None = None,
        *,
        content_type: str = JSON,
        timeout_seconds: float | None = None,
        repeatable: bool = False,
    ) -> Object:
        end = self._clock() + timeout_seconds if timeout_seconds is not None else None
        payload = json.dumps(body, separators=(",", ":")).encode() if body is not None else None
        repeats = 0
        while True:
            left = self._timeout_seconds if end is None else min(self._timeout_seconds, max(end - self._clock(), 0.05))
            try:
                response = self._exchange(method, path, query, payload, content_type, Timeout(connect=left, read=left))
                return decoded(f"{method} {path}", response)
            except (TooManyRequests, Unavailable, Unreachable) as error:
                wait = patience(error)
                late = end is not None and wait is not None and self._clock() + wait >= end
                if not repeatable or wait is None or late or repeats >= (REPEATS if wait else 1):
                    raise
                repeats += 1
                if wait:
                    self._pause(wait)

    def _exchange(
        self,
        method: str,
        path: str,
        query: Query | None,
        payload: bytes | None,
        content_type: str,
        timeout: Timeout,
        *,
        stream: bool = False,
        accept: str = JSON,
    ) -> BaseHTTPResponse:
        tokens = self.server.tokens
        token = tokens.token() if tokens else None
        response = self._send(method, path, query, payload, content_type, timeout, token, stream=stream, accept=accept)
        if response.status == 401:
            self._reread_certificates()
            if tokens is not None:
                tokens.expire()
                fresh = tokens.token()
                if fresh != token:
                    response.close()
                    return self._send(
                        method, path, query, payload, content_type, timeout, fresh, stream=stream, accept=accept
                    )
        return response

    def _send(
        self,
        method: str,
        path: str,
        query: Query | None,
        payload: bytes | None,
        content_type: str,
        timeout: Timeout,
        token: str | None,
        *,
        stream: bool,
        accept: str,
    ) -> BaseHTTPResponse:
        if self._lines.cut.is_set():
            raise Closed("the client was closed")
        headers = {"Accept": accept, "User-Agent": self._user_agent}
        if payload is not None:
            headers["Content-Type"] = content_type
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        url = f"{self._prefix}{path}{query_text(query)}"
        verb = "WATCH" if stream else method
        try:
            response = self._pool.urlopen(
                method,
                url,
                payload,
                headers,
                retries=False,
                redirect=False,
                timeout=timeout,
                preload_content=not stream,
            )
            self._answered(verb, str(response.status))
            return response
        except http.HTTPError as error:
            if self._lines.cut.is_set():
                raise Closed("the client was closed") from error
            failure = from_transport(self.server.url, error)
            self._answered(verb, failure.cause)
            if failure.cause == "untrusted":
                self._reread_certificates()
            raise failure from error

    def _fresh_pool(self) -> HTTPConnectionPool:
        context = context_for(self.server) if self.server.url.startswith("https") else None
        return pool_for(
            self.server.url, self._lines, size=self._pool_size, context=context, server_name=self.server.tls_server_name
        )

    def _reread_certificates(self) -> None:
        # A new pool, because a new authority of the same name does not count beside the old one (OpenSSL takes the first
        # that has the name). Calls under way keep the old pool until they end. A half-written file is read again next time.
        if any(isinstance(material, Path) for material in (self.server.authority, self.server.certificate)):
            with contextlib.suppress(Refused, OSError):
                self._pool = self._fresh_pool()
