"""Case L3: the server, or the network to it, falls silent without closing the connection."""

from structlog.testing import capture_logs

from api.kube.reflector import Timing
from tests.support.reflecting import FakeTime, reflecting
from tests.support.scripted_server import ScriptedServer, Silence, Stream, a_list, an_object, event

SHORT = Timing(silence_seconds=0.1)


def test_silent_watch_is_opened_anew_from_the_last_version():
    """Case L3: a client-side read timeout ends the wait, and nothing is listed again."""
    watches = (
        Stream(event("ADDED", an_object("b", 11)), Silence()),
        Stream(event("ADDED", an_object("c", 12)), Silence()),
    )
    with (
        ScriptedServer(lists=(a_list(an_object("a")),), watches=watches) as server,
        reflecting(server, timing=SHORT) as (reflector, heard, _),
    ):
        assert server.wait_for_watches(2)[1].query["resourceVersion"] == "11"
        assert heard.wait_for(3)[2] == ("Added", None, "c")
        assert reflector.state.lists == 1


def test_quiet_cluster_is_no_outage():
    """A real API server sends bookmarks only once something has happened: nothing is wrong, and nothing is said."""
    time = FakeTime()
    watches = tuple(Stream(time.pass_seconds(91), Silence()) for _ in range(3))
    with (
        capture_logs() as logs,
        ScriptedServer(lists=(a_list(),), watches=watches) as server,
        reflecting(server, timing=SHORT, time=time) as (reflector, _, _),
    ):
        asked = server.wait_for_watches(4)
        assert {one.query["resourceVersion"] for one in asked} == {"10"}
        assert (reflector.state.outages, reflector.state.last_error, reflector.state.lists) == (0, "", 1)
        assert time.waits == []
    assert logs == []


def test_server_that_does_not_take_the_next_watch_is_told_in_plain_words():
    """The silence was the server's, then: the state says which gave no answer."""
    with (
        ScriptedServer(lists=(a_list(),), watches=(Stream(Silence()), Silence())) as server,
        reflecting(server, timing=SHORT) as (reflector, _, time),
    ):
        time.wait_for_waits(2)
        assert reflector.state.last_error == f"{server.url}: no answer in time"
        assert reflector.state.outages == 1


def test_default_silence_leaves_room_for_the_bookmark_of_each_minute():
    """A healthy watch on something that changes sends a bookmark about every minute and is not cut off."""
    assert Timing().silence_seconds == 90.0
