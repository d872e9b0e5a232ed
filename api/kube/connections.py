"""Connections to one API server that another thread can cut.

A blocked read ends only when its socket is shut down, so every connection is known here from before it is made.
"""

import contextlib
import socket
import ssl
import threading
import weakref
from typing import Any
from urllib.parse import urlsplit

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from api.kube.errors import Closed


class Lines:
    """The open connections of one client. Safe from several threads; once cut, it stays cut."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: weakref.WeakSet[HTTPConnection] = weakref.WeakSet()
        self.cut = threading.Event()

    def add(self, connection: HTTPConnection) -> None:
        """Know this connection. Raises Closed when all have been cut already."""
        with self._lock:
            if self.cut.is_set():
                raise Closed("the client was closed")
            self._open.add(connection)

    def hang_up(self) -> None:
        """End every read and write under way, and refuse new connections."""
        with self._lock:
            self.cut.set()
            connections = list(self._open)
        for connection in connections:
            # http.client forgets the socket of an answer that ends with its connection; `line` remembers it.
            line = getattr(connection, "line", None) or connection.sock
            if line is not None:
                hang_up(line)


def hang_up(line: socket.socket) -> None:
    """Shut a socket down under whoever is reading from it."""
    with contextlib.suppress(OSError):
        # Not SSLSocket.shutdown, which also drops the TLS state that another thread is using.
        socket.socket.shutdown(line, socket.SHUT_RDWR)


class _Line(HTTPConnection):
    def __init__(self, *args: Any, lines: Lines, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lines = lines
        self.line: socket.socket | None = None

    def connect(self) -> None:
        self.line = None
        self.lines.add(self)
        super().connect()
        self.line = _checked(self.sock, self.lines)


class _TlsLine(_Line, HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        # Unverified only where the kubeconfig asks for it; urllib3 would warn of it at each connection.
        self.is_verified = True


def _checked(line: socket.socket, lines: Lines) -> socket.socket:
    # Whoever hung up while the connection was being made had no socket to shut down.
    if lines.cut.is_set():
        hang_up(line)
    return line


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _Line


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsLine


def pool_for(
    url: str, lines: Lines, *, size: int, context: ssl.SSLContext | None, server_name: str | None
) -> HTTPConnectionPool:
    """Up to `size` connections kept for reuse. A pool, unlike a session of requests, takes no proxies from the environment."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "http":
        return _PlainPool(host, parts.port or 80, maxsize=size, retries=False, lines=lines)
    return _TlsPool(
        host,
        parts.port or 443,
        maxsize=size,
        retries=False,
        ssl_context=context,
        server_hostname=server_name,
        lines=lines,
    )
