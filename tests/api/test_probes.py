"""/healthz and /readyz."""

import socket
import urllib.error
import urllib.request

import pytest

from api.probes import ProbeServer
from api.refusals import Refused


def a_free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def ask(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_health_and_readiness_are_told_apart():
    """A process that waits for the API server is healthy and not ready."""
    port = a_free_port()
    with ProbeServer(port, healthz=lambda: None, readyz=lambda: "no API server yet"):
        assert ask(port, "/healthz") == (200, "ok\n")
        assert ask(port, "/readyz?verbose") == (503, "no API server yet\n")
        assert ask(port, "/") == (404, "there is /healthz and /readyz\n")


def test_a_port_in_use_is_one_sentence():
    """Two plugins with host network, say."""
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(Refused, match=f"port {port} cannot be had"), ProbeServer(port, healthz=str, readyz=str):
            pass


def test_port_zero_answers_nobody():
    """No thread, no socket."""
    with ProbeServer(0, healthz=lambda: None, readyz=lambda: None):
        pass


def test_a_caller_that_says_nothing_keeps_nobody_waiting():
    """Each is answered in a thread of its own."""
    port = a_free_port()
    with (
        ProbeServer(port, healthz=lambda: None, readyz=lambda: None),
        socket.create_connection(("127.0.0.1", port), timeout=5),
    ):
        assert ask(port, "/healthz") == (200, "ok\n")
