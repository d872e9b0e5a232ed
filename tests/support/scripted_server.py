"""An HTTP server on a real socket that answers as it is told, and remembers what it was asked."""

import json
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

SECONDS = 5.0
"""How long a test waits for what must happen; only a failing test waits that long."""


@dataclass(frozen=True)
class Asked:
    """One request as it came in."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "true"

    @property
    def is_list(self) -> bool:
        return self.method == "GET" and not self.is_watch


@dataclass(frozen=True)
class Json:
    """A whole answer; a body that is bytes is sent as it is."""

    body: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class Eof:
    """Part of a stream: end it cleanly. The end of the parts means the same."""


class Drop:
    """Part of a stream, or an answer: close the connection in the middle."""


class Reset:
    """Part of a stream, or an answer: reset the connection."""


class Silence:
    """Part of a stream, or an answer: say nothing more, keep the connection open until the client goes."""


@dataclass(frozen=True)
class Stream:
    """A chunked answer: events (dicts), raw bytes, or one of the endings above; a callable is waited for."""

    parts: tuple[Any, ...]

    def __init__(self, *parts: Any) -> None:
        object.__setattr__(self, "parts", parts)


def status_body(code: int, reason: str, message: str = "because the test says so", **details: Any) -> dict[str, Any]:
    """A Status object as the API server sends it with an error."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }
    return {**body, "details": details} if details else body


def refusal(code: int, reason: str, message: str = "because the test says so", **headers: str) -> Json:
    """An error answer; header names are written with underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Json(status_body(code, reason, message), status=code, headers=named)


def an_object(name: str, version: int = 1, namespace: str | None = None, **fields: Any) -> dict[str, Any]:
    """A small object of kind Thing."""
    meta = {"name": name, "resourceVersion": str(version), **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "test/v1", "kind": "Thing", "metadata": meta, **fields}


def a_list(*items: dict[str, Any], version: int = 10, token: str = "") -> Json:
    """A page of things; `token` says that there is more."""
    meta = {"resourceVersion": str(version), **({"continue": token} if token else {})}
    return Json({"apiVersion": "test/v1", "kind": "ThingList", "metadata": meta, "items": list(items)})


def event(kind: str, item: dict[str, Any]) -> dict[str, Any]:
    """One line of a watch."""
    return {"type": kind, "object": item}


def bookmark(version: int) -> dict[str, Any]:
    """A line that only says how far we are."""
    return event("BOOKMARK", {"kind": "Thing", "apiVersion": "test/v1", "metadata": {"resourceVersion": str(version)}})


class ScriptedServer:
    """Answers lists and watches from one script each, everything else by `answer`. The last answer of a script repeats.

    A context manager: at its end no thread or socket is left.
    """

    def __init__(
        self,
        *,
        lists: tuple[Any, ...] = (),
        watches: tuple[Any, ...] = (Stream(Silence()),),
        answer: Callable[[Asked], Any] | None = None,
        tls: Any = None,
    ) -> None:
        self._scripts = {"list": list(lists), "watch": list(watches)}
        self._answer = answer
        self._changed = threading.Condition()
        self.asked: list[Asked] = []
        self._sockets: set[socket.socket] = set()
        self._ending = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.script = self
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self.drop_connections()
        self._server.shutdown()
        self._thread.join()
        self.drop_connections()
        self._server.server_close()

    def drop_connections(self) -> None:
        """Cut everybody off, as a restart of the server does."""
        for sock in list(self._sockets):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def wait_for(self, condition: Callable[["ScriptedServer"], bool], what: str) -> None:
        """Wait until something is true of what was asked."""
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), SECONDS), f"{what}; asked: {self.asked}"

    def wait_for_watches(self, count: int) -> list[Asked]:
        """Wait for so many watches, and return all there were."""
        self.wait_for(lambda server: len(server.watches) >= count, f"{count} watches")
        return self.watches

    @property
    def watches(self) -> list[Asked]:
        return [asked for asked in self.asked if asked.is_watch]

    @property
    def lists(self) -> list[Asked]:
        return [asked for asked in self.asked if asked.is_list]

    def next_answer(self, asked: Asked) -> Any:
        with self._changed:
            self.asked.append(asked)
            self._changed.notify_all()
            if self._answer is not None:
                own = self._answer(asked)
                if own is not None:
                    return own
            script = self._scripts["watch" if asked.is_watch else "list"]
            return (script.pop(0) if len(script) > 1 else script[0]) if script else refusal(404, "NotFound")


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True
    script: ScriptedServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are what the tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.script._sockets.add(self.connection)

    def finish(self) -> None:
        self.server.script._sockets.discard(self.connection)
        super().finish()

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        query = {key: values[-1] for key, values in parse_qs(url.query, keep_blank_values=True).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, url.path, query, headers, json.loads(body) if body else None)
        answer = self.server.script.next_answer(asked)
        if isinstance(answer, Json):
            self._whole(answer)
        elif isinstance(answer, Stream):
            self._stream(answer)
        else:
            self._end(answer)

    def __getattr__(self, name: str) -> Any:
        # http.server looks for do_POST and so on; one method serves them all.
        if name.startswith("do_"):
            return self.do_GET
        raise AttributeError(name)

    def _whole(self, answer: Json) -> None:
        body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, answer: Stream) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in answer.parts:
            if callable(part) and not isinstance(part, type):
                part()
                continue
            if not isinstance(part, dict | bytes):
                if not isinstance(part, Eof):
                    self._end(part)
                    return
                break
            line = part if isinstance(part, bytes) else json.dumps(part).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.write(b"0\r\n\r\n")

    def _end(self, how: Any) -> None:
        self.close_connection = True
        if isinstance(how, Silence):
            # Until the client goes, or the test is over and cuts the connection.
            while not self.server.script._ending.is_set() and self.rfile.read1(1):
                pass
        elif isinstance(how, Reset):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            socket.close(self.connection.detach())
        elif not isinstance(how, Drop):
            raise TypeError(f"no answer: {how!r}")
