"""Case L4: the version we watch from is too old (410)."""

from structlog.testing import capture_logs

from tests.support.reflecting import FakeTime, reflecting
from tests.support.scripted_server import (
    ScriptedServer,
    Silence,
    Stream,
    a_list,
    an_object,
    event,
    refusal,
    status_body,
)

GONE = event("ERROR", status_body(410, "Expired", "too old resource version: 10 (99)"))
BEFORE = a_list(an_object("a"), an_object("b"), an_object("c"), version=10)
AFTER = a_list(an_object("a"), an_object("b", value=2), an_object("d"), version=99)
DIFFERENCE = [("Deleted", "c", None), ("Modified", "b", "b=2"), ("Added", None, "d")]


def test_gone_inside_the_stream_lists_again_and_tells_the_difference():
    """Case L4: relist, diff, resume from the new version; unchanged objects are not told again."""
    time = FakeTime()
    watches = (Stream(time.pass_seconds(60), GONE), Stream(Silence()))
    with (
        ScriptedServer(lists=(BEFORE, AFTER), watches=watches) as server,
        reflecting(server, time=time) as (reflector, heard, _),
    ):
        assert server.wait_for_watches(2)[1].query["resourceVersion"] == "99"
        assert heard.changes[3:] == DIFFERENCE
        assert heard.synced == 1
        assert reflector.snapshot() == {"a": "a", "b": "b=2", "d": "d"}
        assert reflector.state.lists == 2
        assert time.waits == [], "after a healthy minute there is no reason to wait"


def test_gone_as_answer_to_the_watch_lists_again():
    """The server may say 410 with the status code instead of in the stream."""
    watches = (refusal(410, "Gone"), Stream(Silence()))
    with ScriptedServer(lists=(BEFORE, AFTER), watches=watches) as server, reflecting(server) as (_, heard, time):
        assert server.wait_for_watches(2)[1].query["resourceVersion"] == "99"
        assert heard.changes[3:] == DIFFERENCE
        assert time.waits == [0.8]


def test_gone_again_and_again_backs_off():
    """Case L4: a server that forgets at once is not asked for lists in a tight loop."""
    with ScriptedServer(lists=(BEFORE,), watches=(Stream(GONE),)) as server, reflecting(server) as (_, _, time):
        assert time.wait_for_waits(6)[:6] == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6]


def test_version_gets_old_without_complaint():
    """A quiet watch whose version was compacted away is the normal course of things and no warning."""
    time = FakeTime()
    watches = (Stream(time.pass_seconds(600), GONE), Stream(Silence()))
    with (
        capture_logs() as logs,
        ScriptedServer(lists=(BEFORE,), watches=watches) as server,
        reflecting(server, time=time) as (reflector, _, _),
    ):
        server.wait_for_watches(2)
        assert reflector.state.last_error == ""
    assert [entry for entry in logs if entry["log_level"] != "info"] == []


def test_version_from_the_future_lists_again():
    """After etcd was restored from a backup the server has not reached our version and says it is too large."""
    too_large = status_body(504, "Timeout", causes=[{"reason": "ResourceVersionTooLarge", "message": "Too large"}])
    watches = (Stream(event("ERROR", too_large)), Stream(Silence()))
    with ScriptedServer(lists=(BEFORE, AFTER), watches=watches) as server, reflecting(server) as (_, _, _):
        assert server.wait_for_watches(2)[1].query["resourceVersion"] == "99"


def test_any_error_event_lists_again():
    """An error in the stream that is not 410 may come again from the same version, so that is not resumed."""
    broken = event("ERROR", status_body(500, "InternalError", "storage is confused"))
    watches = (Stream(broken), Stream(Silence()))
    with ScriptedServer(lists=(BEFORE, AFTER), watches=watches) as server, reflecting(server) as (reflector, _, time):
        server.wait_for_watches(2)
        assert reflector.state.lists == 2
        assert time.waits == [0.8]


def test_line_that_is_no_event_lists_again():
    """Garbage in the stream is an error like others, and does not end the thread."""
    watches = (Stream(b"<html>\n"), Stream(Silence()))
    with ScriptedServer(lists=(BEFORE, AFTER), watches=watches) as server, reflecting(server) as (_, heard, _):
        server.wait_for_watches(2)
        assert heard.changes[3:] == DIFFERENCE
