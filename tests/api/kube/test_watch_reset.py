"""The connection breaks in the middle of the stream."""

import pytest
from structlog.testing import capture_logs

from tests.support.reflecting import FakeTime, reflecting
from tests.support.scripted_server import Drop, Reset, ScriptedServer, Silence, Stream, a_list, an_object, event


@pytest.mark.parametrize("how", [Drop, Reset])
def test_broken_stream_resumes_where_it_was(how):
    """No new list is needed: the last version seen is still known."""
    watches = (Stream(event("ADDED", an_object("a", 11)), how()), Stream(event("ADDED", an_object("b", 12)), Silence()))
    with ScriptedServer(lists=(a_list(),), watches=watches) as server, reflecting(server) as (reflector, heard, time):
        assert heard.wait_for(2) == [("Added", None, "a"), ("Added", None, "b")]
        assert [asked.query["resourceVersion"] for asked in server.watches] == ["10", "11"]
        assert reflector.state.lists == 1
        assert time.waits == [0.8]


def test_half_a_line_is_not_an_event():
    """What was cut off in the middle of an event is read whole after the reconnect."""
    watches = (
        Stream(b'{"type":"ADDED","object":{"meta', Drop()),
        Stream(event("ADDED", an_object("a", 11)), Silence()),
    )
    with ScriptedServer(lists=(a_list(),), watches=watches) as server, reflecting(server) as (reflector, heard, _):
        assert heard.wait_for(1) == [("Added", None, "a")]
        assert reflector.state.lists == 1


def test_event_in_pieces_is_put_together():
    """Chunks of the transport and lines of the watch have nothing to do with each other."""
    pieces = (b'{"type":"ADDED","obj', b'ect":{"metadata":{"name":"a","resourceVersion":"11"}}}\n{"type":"DELE')
    rest = b'TED","object":{"metadata":{"name":"a","resourceVersion":"12"}}}\n'
    with (
        ScriptedServer(lists=(a_list(),), watches=(Stream(*pieces, rest, Silence()),)) as server,
        reflecting(server) as (_, heard, _),
    ):
        assert heard.wait_for(2) == [("Added", None, "a"), ("Deleted", "a", None)]


def test_drops_in_a_row_back_off_and_a_healthy_spell_forgives_them():
    """Waits double while it keeps breaking; after two healthy minutes they start over."""
    time = FakeTime()
    watches = (
        Stream(Drop()),
        Stream(Drop()),
        Stream(Drop()),
        Stream(time.pass_seconds(121), Drop()),
        Stream(Silence()),
    )
    with ScriptedServer(lists=(a_list(),), watches=watches) as server, reflecting(server, time=time):
        server.wait_for_watches(5)
        assert time.waits == [0.8, 1.6, 3.2, 0.8]


def test_an_outage_is_said_when_it_begins_and_when_it_ends():
    """Three drops in a row are one warning; the first event afterwards is one notice."""
    watches = (Stream(Drop()), Stream(Drop()), Stream(Drop()), Stream(event("ADDED", an_object("a", 11)), Silence()))
    with (
        capture_logs() as logs,
        ScriptedServer(lists=(a_list(),), watches=watches) as server,
        reflecting(server) as (reflector, heard, _),
    ):
        heard.wait_for(1)
        assert reflector.state.last_error == ""
        assert reflector.state.outages == 3
    assert [entry["event"] for entry in logs] == ["watch interrupted", "watch recovered"]
    assert logs[0]["why"].endswith(": the connection was dropped")


def test_restart_of_the_server_is_survived():
    """All connections at once go away, and the copy goes on."""
    with ScriptedServer(lists=(a_list(an_object("a")),)) as server, reflecting(server) as (reflector, _, _):
        server.wait_for_watches(1)
        server.drop_connections()
        server.wait_for_watches(2)
        assert reflector.snapshot() == {"a": "a"}
