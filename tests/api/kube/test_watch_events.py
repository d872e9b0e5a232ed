"""A watch in which all goes well."""

import threading

from tests.support.reflecting import PATH, reflecting
from tests.support.scripted_server import ScriptedServer, Silence, Stream, a_list, an_object, bookmark, event


def test_changes_reach_store_and_handler():
    """Added, modified and deleted objects are told with old and new value, and the store follows."""
    stream = Stream(
        event("ADDED", an_object("b", 11)),
        event("MODIFIED", an_object("a", 12, value=2)),
        event("DELETED", an_object("b", 13)),
        Silence(),
    )
    with (
        ScriptedServer(lists=(a_list(an_object("a")),), watches=(stream,)) as server,
        reflecting(server) as (reflector, heard, _),
    ):
        assert heard.wait_for(4)[1:] == [("Added", None, "b"), ("Modified", "a", "a=2"), ("Deleted", "b", None)]
        assert reflector.snapshot() == {"a": "a=2"}


def test_watch_asks_for_bookmarks_an_end_and_the_selected_objects():
    """The request carries version, bookmarks, selectors, and an end between 5 and 10 minutes."""
    with (
        ScriptedServer(lists=(a_list(version=42),)) as server,
        reflecting(server, query={"fieldSelector": "spec.driver=gpu.lanewise.dev"}),
    ):
        (asked,) = server.wait_for_watches(1)
    assert asked.path == PATH
    assert asked.query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "42",
        "timeoutSeconds": "600",
        "fieldSelector": "spec.driver=gpu.lanewise.dev",
    }
    assert server.lists[0].query["fieldSelector"] == "spec.driver=gpu.lanewise.dev"


def test_event_that_changes_nothing_we_keep_is_not_told():
    """A new resourceVersion alone is no change after the transform."""
    stream = Stream(event("MODIFIED", an_object("a", 11)), event("ADDED", an_object("b", 12)), Silence())
    with (
        ScriptedServer(lists=(a_list(an_object("a")),), watches=(stream,)) as server,
        reflecting(server) as (_, heard, _),
    ):
        assert heard.wait_for(2) == [("Added", None, "a"), ("Added", None, "b")]


def test_object_that_the_transform_drops_is_deleted():
    """An object that is of no interest any more leaves the store as if it were deleted."""
    stream = Stream(event("MODIFIED", an_object("a", 11, value="off")), bookmark(12), Silence())

    def transform(item):
        return None if item.get("value") == "off" else item["metadata"]["name"]

    with (
        ScriptedServer(lists=(a_list(an_object("a")),), watches=(stream,)) as server,
        reflecting(server, transform=transform) as (reflector, heard, _),
    ):
        assert heard.wait_for(2)[1] == ("Deleted", "a", None)
        assert reflector.snapshot() == {}


def test_stop_ends_a_waiting_watch_at_once():
    """Stop closes the socket under the waiting thread instead of waiting for the next event."""
    with ScriptedServer(lists=(a_list(),)) as server, reflecting(server) as (reflector, _, _):
        server.wait_for_watches(1)
        assert reflector.stop(timeout_seconds=2.0)
        assert reflector.stop(), "stopping twice does no harm"


def test_stop_ends_a_list_that_gets_no_answer():
    """Also a reflector that has not come as far as watching ends at once."""
    with ScriptedServer(lists=(Silence(),)) as server, reflecting(server) as (reflector, _, _):
        server.wait_for(lambda s: len(s.lists) == 1, "the list")
        assert reflector.stop(timeout_seconds=2.0)


def test_nothing_is_told_after_stop():
    """A handler that stops the reflector hears no more of the same list."""
    with ScriptedServer(lists=(a_list(an_object("a"), an_object("b")),)) as server:
        told = []

        class Stopping:
            def on_change(self, change, old, new):
                told.append(new)
                reflectors[0].stop()

            def on_synced(self):
                told.append("synced")

        reflectors = []
        ready = threading.Event()
        with reflecting(
            server, handler=Stopping(), transform=lambda item: ready.wait(5) and item["metadata"]["name"]
        ) as (
            reflector,
            _,
            _,
        ):
            reflectors.append(reflector)
            ready.set()
            reflector._thread.join(5)
        assert told == ["a"]
