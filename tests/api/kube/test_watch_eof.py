"""The server ends the stream cleanly, as it does every few minutes."""

from tests.support.reflecting import FakeTime, reflecting
from tests.support.scripted_server import Eof, ScriptedServer, Silence, Stream, a_list, an_object, event


def test_watch_that_ran_its_time_is_resumed_at_once():
    """The end we asked for ourselves costs no wait and no list."""
    time = FakeTime()
    watches = (Stream(event("ADDED", an_object("a", 11)), time.pass_seconds(400), Eof()), Stream(Silence()))
    with (
        ScriptedServer(lists=(a_list(),), watches=watches) as server,
        reflecting(server, time=time) as (reflector, _, _),
    ):
        assert server.wait_for_watches(2)[1].query["resourceVersion"] == "11"
        assert time.waits == []
        assert reflector.state.lists == 1
        assert reflector.state.last_error == ""


def test_watches_that_end_at_once_are_no_hot_loop():
    """Case L4: a server or proxy that closes each watch at once is resumed with backoff."""
    with ScriptedServer(lists=(a_list(),), watches=(Stream(),)) as server, reflecting(server) as (_, _, time):
        assert time.wait_for_waits(4)[:4] == [0.8, 1.6, 3.2, 6.4]
        assert len(server.watches) <= len(time.waits) + 1


def test_last_line_without_newline_is_read():
    """The last event of a stream counts even when its newline is missing."""
    line = b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"11"}}}'
    watches = (Stream(line, Eof()), Stream(Silence()))
    with ScriptedServer(lists=(a_list(),), watches=watches) as server, reflecting(server) as (_, heard, _):
        assert heard.wait_for(1) == [("Added", None, "a")]
        assert server.wait_for_watches(2)[1].query["resourceVersion"] == "11"
