"""Bookmarks, and kinds of events we do not know."""

from tests.support.reflecting import reflecting
from tests.support.scripted_server import Drop, ScriptedServer, Silence, Stream, a_list, an_object, bookmark, event


def test_bookmark_moves_the_version_and_is_no_object():
    """After a bookmark the watch resumes from there, and nobody hears of it."""
    watches = (Stream(bookmark(500), Drop()), Stream(Silence()))
    with (
        ScriptedServer(lists=(a_list(an_object("a")),), watches=watches) as server,
        reflecting(server) as (reflector, heard, _),
    ):
        assert server.wait_for_watches(2)[1].query["resourceVersion"] == "500"
        assert heard.changes == [("Added", None, "a")]
        assert reflector.snapshot() == {"a": "a"}


def test_unknown_kind_of_event_is_passed_over():
    """An event of a later release does not break an older reflector."""
    watches = (Stream(event("PROGRESS", an_object("x", 11)), event("ADDED", an_object("a", 12)), Silence()),)
    with ScriptedServer(lists=(a_list(),), watches=watches) as server, reflecting(server) as (reflector, heard, _):
        assert heard.wait_for(1) == [("Added", None, "a")]
        assert reflector.snapshot() == {"a": "a"}
