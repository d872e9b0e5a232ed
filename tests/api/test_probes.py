"""/healthz and /readyz."""

import errno
import socket
import urllib.error
import urllib.request

import pytest

from api import probes
from api.probes import ProbeServer
from api.refusals import Refused


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


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_ipv6_and_ipv4_are_answered_alike():
    """A pod of an IPv6 cluster has no IPv4 address for the kubelet to ask."""
    port = a_free_port()
    with ProbeServer(port, healthz=lambda: None, readyz=lambda: None):
        assert ask(port, "/healthz", "[::1]") == ask(port, "/healthz") == (200, "ok\n")


@pytest.mark.parametrize("error", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL], ids=["not built in", "turned off"])
def test_without_ipv6_there_is_ipv4(monkeypatch, error):
    """Where the kernel has none, and where this network namespace has none."""

    def no_ipv6(*_):
        raise OSError(error, "none here")

    monkeypatch.setattr(probes._ServerOfBoth, "server_bind", no_ipv6)
    port = a_free_port()
    with ProbeServer(port, healthz=lambda: None, readyz=lambda: None):
        assert ask(port, "/healthz") == (200, "ok\n")
