"""The server's life: start, stop, be away for a while, come back on the same port with the same objects."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from api.timestamps import utc_now
from cli.sandbox.apiserver.access import Access, Authorize
from cli.sandbox.apiserver.builtin import BUILTIN
from cli.sandbox.apiserver.deletion import Deletion
from cli.sandbox.apiserver.faults import Faults
from cli.sandbox.apiserver.gates import Gates
from cli.sandbox.apiserver.http import Handler, Request
from cli.sandbox.apiserver.kinds import Served
from cli.sandbox.apiserver.store import Store
from cli.sandbox.apiserver.writes import Writes

JOIN_SECONDS = 10


class _Listener(ThreadingHTTPServer):
    """Accepts connections, and can end them all at once."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, handler: type[Handler]) -> None:
        self.stopping = False
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._guard = threading.Lock()
        super().__init__(("127.0.0.1", port), handler)

    def serve(self) -> None:
        """Accept until stopped; shutting the listening socket down ends the wait, so stopping needs no polling."""
        while not self.stopping:
            try:
                connection, address = self.get_request()
            except OSError:
                continue  # stopped, or a peer that gave up while it queued
            self.process_request(connection, address)

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(
            target=self.process_request_thread, args=(request, client_address), name="apiserver-connection", daemon=True
        )
        with self._guard:
            if not self.stopping:
                self._connections[request] = thread
                thread.start()  # inside, so that whoever cuts connections can join every thread it finds
                return
        super().shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A peer that went away is no news; anything else is our mistake and must be seen."""
        if not self.stopping and not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def drop_connections(self) -> list[threading.Thread]:
        """Cut every open connection; gives back the threads that served them."""
        with self._guard:
            open_now = list(self._connections.items())
        for connection, _ in open_now:
            _cut(connection)
        return [thread for _, thread in open_now]

    def close(self) -> None:
        """Stop listening, cut every connection, wait for their threads."""
        self.stopping = True
        _cut(self.socket)
        for thread in self.drop_connections():
            thread.join(JOIN_SECONDS)
        self.server_close()


def _cut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # already gone


class ApiServer:
    """An API server on 127.0.0.1. `with ApiServer() as api:` starts and stops it; objects outlive a stop.

    `bookmarks_seconds` is the time between bookmarks of a watch that allows them. `feature_gates` are laid over the
    defaults of Kubernetes 1.37 (see `gates`). `tokens` maps bearer tokens to user names; without any, everybody is
    the administrator. `authorize(user, verb, path)` may refuse with a reason. `now` is the clock of timestamps.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        bookmarks_seconds: float = 60,
        feature_gates: Mapping[str, bool] | None = None,
        tokens: Mapping[str, str] | None = None,
        authorize: Authorize | None = None,
        now: Callable[[], datetime] = utc_now,
        keep_changes: int = 20_000,
    ) -> None:
        self.port = port
        self.bookmarks_seconds = bookmarks_seconds
        self.served = Served(BUILTIN)
        self.store = Store(self.served, now, keep_changes)
        self.faults = Faults(self.store.wake)
        self.access = Access(dict(tokens or {}), authorize)
        self.deletion = Deletion(self.store, self.served)
        self.writes = Writes(
            self.store, self.served, self.deletion, Gates.of(feature_gates or {}), lambda: self.faults.dropped_fields
        )
        self._listener: _Listener | None = None
        self._thread: threading.Thread | None = None
        self._log: list[Request] = []
        self._log_changed = threading.Condition()
        for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            self.store.put(
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                    "spec": {"finalizers": ["kubernetes"]},
                    "status": {"phase": "Active"},
                }
            )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def stopping(self) -> bool:
        """Whether open requests should end."""
        return self._listener is None or self._listener.stopping

    def start(self) -> None:
        """Listen; after a stop, on the same port as before."""
        handler = type("BoundHandler", (Handler,), {"api": self})
        self._listener = _Listener(self.port, handler)
        self.port = self._listener.server_address[1]
        self._thread = threading.Thread(target=self._listener.serve, name="apiserver", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop listening and end every open request, watches included; safe to repeat."""
        listener, thread = self._listener, self._thread
        if listener is None or thread is None:
            return
        listener.stopping = True
        self.faults.release_holds()
        self.store.wake()
        listener.close()
        thread.join(JOIN_SECONDS)
        self._listener = self._thread = None

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Be unreachable inside the block: connections are refused, open ones are cut."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def drop_connections(self) -> None:
        """Cut every open connection in the middle of whatever it carries, and go on listening."""
        if self._listener is not None:
            self._listener.drop_connections()

    def note(self, request: Request) -> None:
        """Keep a request in the log; the handler calls this."""
        with self._log_changed:
            self._log.append(request)
            self._log_changed.notify_all()

    @property
    def requests(self) -> list[Request]:
        """All requests so far, in the order of arrival."""
        with self._log_changed:
            return list(self._log)

    def forget_requests(self) -> None:
        """Empty the log."""
        with self._log_changed:
            self._log.clear()

    def wait_for_request(self, matches: Callable[[Request], bool], timeout: float = 10) -> bool:
        """Wait until a request in the log matches; False when none came in time (seconds)."""
        with self._log_changed:
            return self._log_changed.wait_for(lambda: any(map(matches, self._log)), timeout)

    def kubeconfig(self, path: Path, token: str = "") -> Path:
        """Write a kubeconfig for this server to `path`; with a token, for its user."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sandbox", "cluster": {"server": self.url}}],
            "users": [{"name": "sandbox", "user": {"token": token} if token else {}}],
            "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox"}}],
            "current-context": "sandbox",
        }
        path.write_text(json.dumps(config, indent=2) + "\n")
        return path
