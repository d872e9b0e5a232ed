"""Whoever listens, or reads the objects, makes a mistake."""

from structlog.testing import capture_logs

from tests.support.reflecting import FakeTime, Heard, reflecting, value_of
from tests.support.scripted_server import (
    ScriptedServer,
    Silence,
    Stream,
    a_list,
    an_object,
    event,
    status_body,
)


class Failing(Heard):
    def on_change(self, change, old, new):
        super().on_change(change, old, new)
        raise RuntimeError("a bug of ours")

    def on_synced(self):
        super().on_synced()
        raise RuntimeError("another")


def test_handler_that_raises_is_logged_and_called_again():
    """The copy goes on, and so do the calls."""
    watches = (Stream(event("ADDED", an_object("b", 11)), Silence()),)
    with (
        capture_logs() as logs,
        ScriptedServer(lists=(a_list(an_object("a")),), watches=watches) as server,
        reflecting(server, handler=Failing()) as (reflector, heard, _),
    ):
        assert heard.wait_for(2) == [("Added", None, "a"), ("Added", None, "b")]
        assert reflector.snapshot() == {"a": "a", "b": "b"}
        assert heard.synced == 1
    assert [entry["event"] for entry in logs] == ["handler failed"] * 3


def strict(item):
    if item.get("value") == "bad":
        raise ValueError("no such value")
    return value_of(item)


def test_object_that_cannot_be_read_keeps_its_last_good_value():
    """A bad write by somebody else is not taken for a deletion, neither in a watch nor in a list."""
    time = FakeTime()
    gone = event("ERROR", status_body(410, "Expired"))
    bad = an_object("a", 11, value="bad")
    watches = (
        Stream(event("MODIFIED", bad), time.pass_seconds(60), gone),
        Stream(event("ADDED", an_object("b", 100)), Silence()),
    )
    lists = (a_list(an_object("a", value=1)), a_list(bad, version=99))
    with (
        capture_logs() as logs,
        ScriptedServer(lists=lists, watches=watches) as server,
        reflecting(server, time=time, transform=strict) as (reflector, heard, _),
    ):
        assert heard.wait_for(2) == [("Added", None, "a=1"), ("Added", None, "b")]
        assert reflector.snapshot() == {"a": "a=1", "b": "b"}
    assert [entry["event"] for entry in logs] == ["object could not be read"] * 2
    assert logs[0]["why"] == "ValueError: no such value"


def test_object_without_name_does_not_end_the_thread():
    """Nonsense from the server is an error with backoff."""
    with (
        ScriptedServer(lists=(a_list({"metadata": {}}), a_list(an_object("a")))) as server,
        reflecting(server) as (_reflector, heard, time),
    ):
        heard.wait_for(1)
        assert time.waits == [0.8]
