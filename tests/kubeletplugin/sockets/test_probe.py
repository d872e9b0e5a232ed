"""The plugin asking itself, through its own files."""

import socket
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from kubeletplugin.sockets.probe import NoAnswer, connect, probe


def test_working_sockets_pass(node):
    """Both answer."""
    node.plugin().start()
    assert probe(node.paths().registration, 5) is None


def test_missing_registration_socket_fails(node):
    """Nothing is there."""
    reason = probe(node.paths().registration, 5)
    assert isinstance(reason, NoAnswer)
    assert reason.path == node.paths().registration
    assert reason.what.startswith(f"{node.paths().registration} does not answer: UNAVAILABLE: ")


def test_missing_dra_socket_fails(node):
    """The registrar alone is of no use."""
    node.plugin().start()
    node.paths().dra.unlink()
    assert probe(node.paths().registration, 5).path == node.paths().dra


def test_mended_socket_passes_at_once(node):
    """Whatever else dialled it in vain before, and still does with growing pauses."""
    path = node.paths().registration
    with connect(path) as other:
        for _ in range(3):
            with pytest.raises(grpc.RpcError):
                other.unary_unary("/pluginregistration.Registration/GetInfo")(b"", timeout=5)
            assert probe(path, 5) is not None
        node.plugin().start()
        assert probe(path, 5) is None


def test_socket_that_accepts_and_says_nothing_fails_in_time(node):
    """A process that hangs."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(str(node.paths().registration))
        silent.listen()
        assert probe(node.paths().registration, 0.2).what.endswith("DEADLINE_EXCEEDED: Deadline Exceeded")


@pytest.mark.parametrize("authority", ["localhost", "whatever"])
def test_our_server_takes_any_authority(node, authority):
    """Case L9: the kubelet sends localhost, older clients the socket's path."""
    node.plugin().start()
    options = (("grpc.default_authority", authority),)
    with grpc.insecure_channel(f"unix://{node.paths().registration}", options=options) as channel:
        assert channel.unary_unary("/pluginregistration.Registration/GetInfo")(b"", timeout=5)


def test_our_clients_send_localhost_as_authority(node):
    """Case L9: strict servers answer a path in the authority with PROTOCOL_ERROR."""
    path = node.registry / "x.sock"
    seen = []

    class Look(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(
                lambda request, context: seen.append(context._rpc_event.call_details.host) or b""
            )

    with ThreadPoolExecutor(1) as workers:
        server = grpc.server(workers, handlers=[Look()])
        server.add_insecure_port(f"unix://{path}")
        server.start()
        with connect(path) as channel:
            channel.unary_unary("/a.B/C")(b"", timeout=5)
        server.stop(None).wait()
    assert seen == [b"localhost"]
