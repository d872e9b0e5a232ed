"""Nobody takes the connection, or the server is broken."""

import socket

from api.kube.server import Server
from tests.support.reflecting import reflecting
from tests.support.scripted_server import ScriptedServer, Silence, Stream, a_list, an_object, refusal


def a_closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def test_refused_connection_backs_off_to_half_a_minute():
    """A server that is away is asked less and less often, at the end every 30 s."""
    away = Server(url=f"http://127.0.0.1:{a_closed_port()}")
    with ScriptedServer() as unused, reflecting(unused, target=away) as (reflector, heard, time):
        assert time.wait_for_waits(8)[:8] == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]
        assert reflector.state.last_error == f"{away.url}: connection refused"
        assert not reflector.state.synced
        assert heard.changes == []


def test_broken_server_backs_off_and_keeps_what_is_known():
    """500 to the watch is no reason to list again, nor to forget."""
    watches = (refusal(500, "InternalError"), refusal(500, "InternalError"), Stream(Silence()))
    lists = (a_list(an_object("a")),)
    with ScriptedServer(lists=lists, watches=watches) as server, reflecting(server) as (reflector, _, time):
        server.wait_for_watches(3)
        assert time.waits == [0.8, 1.6]
        assert reflector.snapshot() == {"a": "a"}
        assert reflector.state.lists == 1
        assert reflector.state.synced
