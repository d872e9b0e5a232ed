"""The events of one watch, as they come off the wire."""

import json
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from urllib3 import BaseHTTPResponse
from urllib3 import exceptions as http

from api.kube.connections import Lines
from api.kube.errors import Closed, Garbled, from_status, from_transport

Object = dict[str, Any]
"""An object of the API as JSON gave it."""

CHUNK_BYTES = 65536


class Watch:
    """An iterator over (type, object) that ends when the server ends the watch. `close` may be called by any thread.

    Types are ADDED, MODIFIED, DELETED and BOOKMARK. Iterating raises the error an ERROR event carries, Unreachable when
    the connection drops or stays silent too long, Garbled for what is no event, Closed after `close`.
    """

    def __init__(self, response: BaseHTTPResponse, *, call: str, server: str, lines: Lines) -> None:
        self._response = response
        self._call = call
        self._server = server
        self._lines = lines
        self._closed = False
        self._events = self._read()

    def __iter__(self) -> Iterator[tuple[str, Object]]:
        return self

    def __next__(self) -> tuple[str, Object]:
        return next(self._events)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the connection up; for the thread that iterates."""
        self._closed = True
        self._response.close()

    def close(self) -> None:
        """End the iteration, also one that waits for the next event in another thread. Repeating it does no harm."""
        self._closed = True
        try:
            self._response.shutdown()
        except (OSError, ValueError, RuntimeError):
            # Nothing is open any more: the server was first.
            return

    def _read(self) -> Iterator[tuple[str, Object]]:
        rest = b""
        while True:
            chunk = self._chunk()
            if not chunk:
                break
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.strip():
                    yield self._event(line)
        if rest.strip():
            yield self._event(rest)

    def _chunk(self) -> bytes:
        try:
            chunk = self._response.read1(CHUNK_BYTES)
        except (http.HTTPError, OSError, ValueError) as error:
            self._fail_if_closed(error)
            # TLS that ends without saying so is a drop as well, not a matter of trust.
            ended = error if isinstance(error, http.ReadTimeoutError) else http.ProtocolError()
            raise from_transport(self._server, ended) from error
        # A socket we shut down reads as a server that has finished.
        self._fail_if_closed(None)
        return chunk

    def _fail_if_closed(self, error: Exception | None) -> None:
        if self._closed or self._lines.cut.is_set():
            raise Closed(f"{self._call}: the watch was closed") from error

    def _event(self, line: bytes) -> tuple[str, Object]:
        try:
            event = json.loads(line)
            kind, item = event["type"], event["object"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Garbled(self._call, "a line of the watch is no event") from error
        if not isinstance(kind, str) or not isinstance(item, dict):
            raise Garbled(self._call, "a line of the watch is no event")
        if kind == "ERROR":
            raise from_status(self._call, item)
        return kind, item
