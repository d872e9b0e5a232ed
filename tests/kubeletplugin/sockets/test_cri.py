"""A container runtime asked on its own socket."""

import pytest

from kubeletplugin.sockets.cri import Runtime, ask
from tests.support.cri_runtime import a_runtime, field, status, version


def test_what_the_runtime_says(node):
    """Name, version and the configuration in force; verbose is asked for."""
    socket = node.registry / "run.sock"
    config = {"enableCDI": True, "cdiSpecDirs": ["/etc/cdi"], "filler": "x" * 300}
    answers = {"Version": version("containerd", "v2.4.2"), "Status": status(config)}
    with a_runtime(socket, answers) as asked:
        assert ask(socket, 5) == Runtime("containerd", "v2.4.2", config)
    assert asked == [("Version", b""), ("Status", b"\x08\x01")]


def test_a_runtime_that_is_not_there(node):
    """Said in a sentence."""
    socket = node.registry / "none.sock"
    assert str(ask(socket, 2)).startswith(f"{socket} does not answer: UNAVAILABLE: ")


def test_a_runtime_that_has_no_such_call(node):
    """The same."""
    socket = node.registry / "run.sock"
    with a_runtime(socket, {"Version": version("x", "1")}):
        assert str(ask(socket, 5)).startswith(f"{socket} does not answer: UNIMPLEMENTED: ")


@pytest.mark.parametrize("garbage", [b"\x0a", b"\x0a\x05abc", b"\x0f", b"\xff" * 11, b"\x08"])
def test_an_answer_that_is_none(node, garbage):
    """Never an exception."""
    socket = node.registry / "run.sock"
    with a_runtime(socket, {"Version": garbage, "Status": garbage}):
        assert str(ask(socket, 5)).startswith(f"{socket} answers with something else than CRI: ")


def test_a_runtime_without_a_configuration(node):
    """CRI-O tells none that speaks of CDI."""
    socket = node.registry / "run.sock"
    with a_runtime(socket, {"Version": version("cri-o", "1.34.0"), "Status": field(1, b"")}):
        assert ask(socket, 5) == Runtime("cri-o", "1.34.0", {})
