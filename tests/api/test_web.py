"""/healthz, /readyz, and pages."""

import contextlib
import errno
import socket
import threading
import time
import urllib.error
import urllib.request

import pytest
from structlog.testing import capture_logs

from api import web
from api.refusals import Refused
from api.web import WebServer


def a_free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def ask(port, path, host="127.0.0.1"):
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_health_and_readiness_are_told_apart():
    """A process that waits for the API server is healthy and not ready."""
    port = a_free_port()
    with WebServer(port, healthz=lambda: None, readyz=lambda: "no API server yet"):
        assert ask(port, "/healthz") == (200, "ok\n")
        assert ask(port, "/readyz?verbose") == (503, "no API server yet\n")
        assert ask(port, "/") == (404, "there is /healthz and /readyz\n")


def test_a_port_in_use_is_one_sentence():
    """Two plugins with host network, say."""
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(Refused, match=f"port {port} cannot be had"), WebServer(port, healthz=str, readyz=str):
            pass


def test_port_zero_answers_nobody():
    """No thread, no socket."""
    with WebServer(0, healthz=lambda: None, readyz=lambda: None):
        pass


def test_a_caller_that_says_nothing_keeps_nobody_waiting():
    """Each is answered in a thread of its own."""
    port = a_free_port()
    with (
        WebServer(port, healthz=lambda: None, readyz=lambda: None),
        socket.create_connection(("127.0.0.1", port), timeout=5),
    ):
        assert ask(port, "/healthz") == (200, "ok\n")


def test_callers_that_never_finish_are_few(monkeypatch):
    """Each byte in time keeps a connection for ever, and a port of the host's network is open to many: the files that they
    hold open would soon be those that claims are prepared with. The oldest gives way, so whoever asks is answered."""
    monkeypatch.setattr(web, "CALLERS_MAX", 4)
    port = a_free_port()
    with WebServer(port, healthz=lambda: None, readyz=lambda: None), contextlib.ExitStack() as opened:
        callers = [opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5)) for _ in range(20)]
        for caller in callers:
            with contextlib.suppress(ConnectionError):
                caller.sendall(b"GET /hea")
        assert ask(port, "/healthz") == (200, "ok\n")
        for caller in callers[:16]:
            with contextlib.suppress(ConnectionResetError):
                assert caller.recv(1) == b""
        callers[-1].sendall(b"lthz HTTP/1.0\r\n\r\n")
        assert callers[-1].recv(15) == b"HTTP/1.0 200 OK"


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_ipv6_and_ipv4_are_answered_alike():
    """A pod of an IPv6 cluster has no IPv4 address for the kubelet to ask."""
    port = a_free_port()
    with WebServer(port, healthz=lambda: None, readyz=lambda: None):
        assert ask(port, "/healthz", "[::1]") == ask(port, "/healthz") == (200, "ok\n")


@pytest.mark.parametrize("error", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL], ids=["not built in", "turned off"])
def test_without_ipv6_there_is_ipv4(monkeypatch, error):
    """Where the kernel has none, and where this network namespace has none."""

    def no_ipv6(*_):
        raise OSError(error, "none here")

    monkeypatch.setattr(web._ServerOfBoth, "server_bind", no_ipv6)
    port = a_free_port()
    with WebServer(port, healthz=lambda: None, readyz=lambda: None):
        assert ask(port, "/healthz") == (200, "ok\n")


def test_a_page_says_its_own_content_type():
    """And is told what the caller accepts."""
    port = a_free_port()
    accepted = []

    def page(accept):
        accepted.append(accept)
        return "text/x-page", b"content"

    with WebServer(port, healthz=lambda: None, readyz=lambda: None, pages={"/page": page}):
        request = urllib.request.Request(f"http://127.0.0.1:{port}/page?x=1", headers={"Accept": "text/x-page"})
        with urllib.request.urlopen(request, timeout=5) as answer:
            assert (answer.headers["Content-Type"], answer.read()) == ("text/x-page", b"content")
        assert ask(port, "/") == (404, "there is /healthz, /readyz and /page\n")
    assert accepted == ["text/x-page"]


def test_a_page_that_breaks_takes_nothing_else_with_it():
    """500, a traceback in the log, and the next question is answered."""
    port = a_free_port()

    def broken(_):
        raise ValueError("no such thing")

    with capture_logs() as logs, WebServer(port, healthz=lambda: None, readyz=str, pages={"/page": broken}):
        assert ask(port, "/page")[0] == 500
        assert ask(port, "/healthz") == (200, "ok\n")
    assert [(entry["event"], entry["path"]) for entry in logs] == [("question not answered", "/page")]


def test_a_taken_port_is_had_when_the_other_program_ends():
    """Two node plugins share their host's network during an update: the second waits, and says so once."""
    port = a_free_port()
    with capture_logs() as logs:
        with WebServer(port, healthz=lambda: "old", readyz=lambda: None):
            new = WebServer(port, healthz=lambda: "new", readyz=lambda: None, retry_seconds=0.02)
            new.__enter__()
            assert ask(port, "/healthz") == (503, "old\n")
        end = time.monotonic() + 10
        while not any(entry["event"] == "port had" for entry in logs):
            assert time.monotonic() < end
            threading.Event().wait(0.01)
        assert ask(port, "/healthz") == (503, "new\n")
        new.__exit__(None, None, None)
    assert [entry["event"] for entry in logs] == ["port taken", "port had"]


def test_one_that_waits_for_its_port_ends_at_once():
    """However long it would have waited."""
    with socket.create_server(("", 0)) as taken, capture_logs():
        port = taken.getsockname()[1]
        began = time.monotonic()
        with WebServer(port, healthz=lambda: None, readyz=lambda: None, retry_seconds=3600):
            pass
        assert time.monotonic() - began < 5


def test_a_port_that_may_not_be_had_is_refused_by_one_that_waits_too(monkeypatch):
    """Waiting would not help, and a setting that cannot work is said at the start."""

    def forbidden(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(web, "_listening", forbidden)
    with pytest.raises(Refused, match="Permission denied"):
        WebServer(80, healthz=lambda: None, readyz=lambda: None, retry_seconds=1).__enter__()
