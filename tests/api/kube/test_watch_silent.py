"""Case L3: the server, or the network to it, falls silent without closing the connection."""

from api.kube.reflector import Timing
from tests.support.reflecting import reflecting
from tests.support.scripted_server import ScriptedServer, Silence, Stream, a_list, an_object, event

SHORT = Timing(silence_seconds=0.1)


def test_silent_watch_is_given_up_and_resumed_from_the_last_version():
    """Case L3: a client-side read timeout ends the wait; the loss is an ordinary reconnect with backoff."""
    watches = (
        Stream(event("ADDED", an_object("b", 11)), Silence()),
        Stream(event("ADDED", an_object("c", 12)), Silence()),
    )
    with (
        ScriptedServer(lists=(a_list(an_object("a")),), watches=watches) as server,
        reflecting(server, timing=SHORT) as (reflector, heard, time),
    ):
        assert server.wait_for_watches(2)[1].query["resourceVersion"] == "11"
        assert heard.wait_for(3)[2] == ("Added", None, "c")
        assert time.waits[0] == 0.8
        assert reflector.state.lists == 1


def test_silence_is_told_in_plain_words():
    """The state says which server gave no answer."""
    with (
        ScriptedServer(lists=(a_list(),), watches=(Stream(Silence()), Silence())) as server,
        reflecting(server, timing=SHORT) as (reflector, _, time),
    ):
        time.wait_for_waits(1)
        assert reflector.state.last_error == f"{server.url}: no answer in time"


def test_default_silence_leaves_room_for_the_bookmark_of_each_minute():
    """A healthy but quiet watch sends a bookmark about every minute and must not be cut off."""
    assert Timing().silence_seconds == 90.0
