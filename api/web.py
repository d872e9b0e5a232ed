"""What a program answers over HTTP: /healthz and /readyz for the kubelet's probes, and pages such as /metrics."""

import contextlib
import errno
import selectors
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Self

import structlog

from api.refusals import BadInput, Refused

WhyNot = Callable[[], str | None]
"""None while all is well, else one sentence."""
Page = Callable[[str], tuple[str, bytes]]
"""Content type and body, for what the caller says it accepts (the header Accept, or nothing)."""
CONNECTION_SECONDS = 5.0
"""A caller that says nothing for this long is hung up on."""
CALLERS_MAX = 64
"""At a time; the next one takes the place of the oldest. An answer takes milliseconds, so that one only pretends to ask."""
_TEXT = "text/plain; charset=utf-8"
_NO_IPV6 = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}
"""Built or booted without it, or turned off for this network namespace."""

_log = structlog.get_logger(__name__)


class WebServer:
    """Answers over IPv6 and IPv4, in threads of its own. A context manager; port 0 answers nobody.

    `healthz` says whether the process should be restarted, `readyz` whether it does its work now: 200 `ok`, or 503 with the
    reason. Checks and pages are asked in a thread for each caller and must not wait long.
    """

    def __init__(
        self,
        port: int,
        *,
        healthz: WhyNot,
        readyz: WhyNot,
        pages: Mapping[str, Page] | None = None,
        retry_seconds: float | None = None,
    ) -> None:
        """A port that is taken is asked for again every `retry_seconds`, or Refused where that is None; one that cannot be
        had for another reason is Refused."""
        self._port = port
        self._retry_seconds = retry_seconds
        checks = {path: _checked(check) for path, check in (("/healthz", healthz), ("/readyz", readyz))}
        answers: dict[str, _Answer] = checks | {path: _shown(page) for path, page in (pages or {}).items()}
        self._handler = type("Handler", (_Handler,), {"answers": answers})
        self._stopping = threading.Event()
        self._end: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._port:
            server = self._bound()
            if server is None:
                _log.warning(
                    "port taken",
                    port=self._port,
                    remedy="nothing need be done in an update: it is asked for again until the other program has ended",
                )
            self._end, ended = socket.socketpair()
            self._thread = threading.Thread(target=self._run, args=(server, ended), name="web", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        if self._end is not None and self._thread is not None:
            self._end.close()
            self._thread.join()

    def _bound(self) -> "_Server | None":
        """None where the port is taken and we may wait for it."""
        try:
            return _listening(self._port, self._handler)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and self._retry_seconds is not None:
                return None
            problem = f"port {self._port} cannot be had: {error.strerror or error}"
            raise Refused(BadInput("--http-port", problem, "choose another port, or 0 for none")) from error

    def _run(self, server: "_Server | None", ended: socket.socket) -> None:
        with ended:
            if server is None:
                server = self._awaited()
            if server is None:
                return
            with server, selectors.DefaultSelector() as selector:
                selector.register(server, selectors.EVENT_READ)
                selector.register(ended, selectors.EVENT_READ)
                while not self._stopping.is_set():  # awake only when somebody calls, or at the end
                    selector.select()
                    server.handle_request()

    def _awaited(self) -> "_Server | None":
        """None when there is no more need of it."""
        while not self._stopping.wait(self._retry_seconds):
            try:
                server = self._bound()
            except Refused as refused:
                _log.warning("port not had", why=refused.reason.what, remedy=refused.reason.remedy)
                return None
            if server is not None:
                _log.info("port had", port=self._port)
                return server
        return None


_Answer = Callable[[str], tuple[int, str, bytes]]
"""Status, content type, body."""


def _checked(check: WhyNot) -> _Answer:
    def answer(_: str) -> tuple[int, str, bytes]:
        why_not = check()
        return (200, _TEXT, b"ok\n") if why_not is None else (503, _TEXT, f"{why_not}\n".encode())

    return answer


def _shown(page: Page) -> _Answer:
    def answer(accept: str) -> tuple[int, str, bytes]:
        return (200, *page(accept))

    return answer


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    timeout = 0.0
    """Of `handle_request`: whoever calls it has seen that there is a caller, who may have gone again."""
    allow_reuse_port = False
    """Two programs on one port would each get some of the calls."""
    request_queue_size = 2 * CALLERS_MAX
    """With the base class's 5, some of ten callers at once are answered a second later, when they knock again."""

    def __init__(self, *arguments: Any) -> None:
        self._callers: dict[socket.socket, None] = {}
        """Those who are listened to, the oldest first."""
        self._lock = threading.Lock()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread for each. One byte in time keeps a thread and an open file for as long as the caller likes."""
        with self._lock:
            self._callers[request] = None
            if len(self._callers) > CALLERS_MAX:
                oldest = next(iter(self._callers))
                del self._callers[oldest]
                with contextlib.suppress(OSError):  # gone already
                    oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forgotten before it is closed: its number may be another file's next."""
        with self._lock:
            self._callers.pop(request, None)
        super().shutdown_request(request)

    def server_bind(self) -> None:
        """Without the base class's question to DNS for our own name, which nobody reads."""
        if self.address_family == socket.AF_INET6:
            # The node's default may be otherwise (net.ipv6.bindv6only), and the kubelet asks the pod's first address.
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that hangs up is no news."""


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
    answers: Mapping[str, _Answer]
    timeout = CONNECTION_SECONDS

    def do_GET(self) -> None:
        """Answer one question."""
        path = self.path.split("?", 1)[0]
        answer = self.answers.get(path)
        if answer is None:
            *others, last = self.answers
            self._send(404, _TEXT, f"there is {', '.join(others)} and {last}\n".encode())
            return
        try:
            status, content_type, body = answer(self.headers.get("Accept", ""))
        except Exception:  # noqa: BLE001  # the edge of a question: logged, and the caller is told
            _log.exception("question not answered", path=path)
            status, content_type, body = 500, _TEXT, b"internal error; see the program's log\n"
        self._send(status, content_type, body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class names it
        """Probes come every few seconds; nobody reads that."""

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
