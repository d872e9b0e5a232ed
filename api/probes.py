"""/healthz and /readyz over HTTP, for the kubelet's probes."""

import errno
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Self

from api.refusals import BadInput, Refused

WhyNot = Callable[[], str | None]
"""None while all is well, else one sentence."""
CONNECTION_SECONDS = 5.0
"""A caller that says nothing for this long is hung up on."""
_NO_IPV6 = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}
"""Built or booted without it, or turned off for this network namespace."""


class ProbeServer:
    """Answers 200 `ok`, or 503 with the reason, over IPv6 and IPv4. A context manager; port 0 answers nobody.

    Refused when the port cannot be had. `healthz` says whether the process should be restarted, `readyz` whether it does
    its work now; both are asked in a thread of their own and must not wait.
    """

    def __init__(self, port: int, *, healthz: WhyNot, readyz: WhyNot) -> None:
        self._port = port
        self._checks = {"/healthz": healthz, "/readyz": readyz}
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._port:
            handler = type("ProbeHandler", (_Handler,), {"checks": self._checks})
            try:
                self._server = _listening(self._port, handler)
            except OSError as error:
                problem = f"port {self._port} cannot be had: {error.strerror or error}"
                raise Refused(BadInput("--probe-port", problem, "choose another port, or 0 for none")) from error
            self._thread = threading.Thread(
                target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="probes", daemon=True
            )
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self._server = self._thread = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Without the base class's question to DNS for our own name, which nobody reads."""
        if self.address_family == socket.AF_INET6:
            # The node's default may be otherwise (net.ipv6.bindv6only), and the kubelet asks the pod's first address.
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A probe that hangs up is no news."""


class _ServerOfBoth(_Server):
    address_family = socket.AF_INET6


def _listening(port: int, handler: type[BaseHTTPRequestHandler]) -> _Server:
    """On every address of the machine, whichever of IPv6 and IPv4 it has."""
    try:
        return _ServerOfBoth(("::", port), handler)
    except OSError as error:
        if error.errno not in _NO_IPV6:
            raise
    return _Server(("0.0.0.0", port), handler)


class _Handler(BaseHTTPRequestHandler):
    checks: dict[str, WhyNot]
    timeout = CONNECTION_SECONDS

    def do_GET(self) -> None:
        """Answer one probe."""
        check = self.checks.get(self.path.split("?", 1)[0])
        if check is None:
            self._answer(404, "there is /healthz and /readyz")
            return
        why_not = check()
        self._answer(200 if why_not is None else 503, why_not or "ok")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class names it
        """Probes come every few seconds; nobody reads that."""

    def _answer(self, status: int, text: str) -> None:
        body = f"{text}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
