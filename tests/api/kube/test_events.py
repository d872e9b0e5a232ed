"""Events on objects."""

import threading
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from api.kube.client import Client
from api.kube.events import QUEUE_LENGTH, EventRecorder, Regarding, cut
from api.kube.server import Server
from api.names import is_dns_subdomain
from tests.support.reflecting import FakeTime
from tests.support.scripted_server import SECONDS, ScriptedServer, Silence, refusal
from tests.support.small_store import SmallStore

CLAIM = Regarding("resource.k8s.io/v1", "ResourceClaim", "train", "team-a", "uid-1")
EVENTS = "/apis/events.k8s.io/v1/namespaces/team-a/events"


@contextmanager
def recording(answer=None):
    store = SmallStore()
    time = FakeTime()
    with (
        ScriptedServer(answer=answer(store) if answer else store) as server,
        Client(Server(url=server.url), user_agent="test", timeout_seconds=SECONDS) as client,
    ):
        recorder = EventRecorder(
            client,
            "lanewise.dev/controller",
            "controller-0",
            clock=time,
            now=lambda: datetime.fromtimestamp(1.8e9 + time.now, UTC),
            wait=time.wait,
        )
        recorder.start()
        try:
            yield recorder, server, store, time
        finally:
            assert recorder.stop()


def tell(recorder, note="no GPU is free", regarding=CLAIM):
    recorder.warning(regarding, reason="NotPlaceable", note=note, action="Explaining")


def asked(server, count):
    server.wait_for(lambda s: len(s.asked) >= count, f"{count} requests")
    return server.asked


@pytest.mark.parametrize("at_the_cut", ["-", ".", ".-"])
def test_an_event_on_a_long_name_has_a_name_that_is_one(at_the_cut):
    """Cut at a dash or dot it would be no DNS subdomain, and the API server would take no such event."""
    name = (f"{'a' * 43}." * 5)[: 220 - len(at_the_cut)] + at_the_cut + "b" * 30
    with recording() as (recorder, server, _, _):
        tell(recorder, regarding=replace(CLAIM, name=name))
        (request,) = asked(server, 1)
    assert is_dns_subdomain(request.body["metadata"]["name"])


def test_event_is_made_beside_its_object():
    """All that events.k8s.io/v1 asks for is there."""
    with recording() as (recorder, server, _, _):
        tell(recorder)
        (request,) = asked(server, 1)
    assert request.method, request.path == ("POST", EVENTS)
    event = request.body
    assert event["metadata"]["namespace"] == "team-a"
    assert event["metadata"]["name"].startswith("train.")
    del event["metadata"]
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": "2027-01-15T08:16:40.000000Z",
        "reportingController": "lanewise.dev/controller",
        "reportingInstance": "controller-0",
        "regarding": {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "name": "train",
            "namespace": "team-a",
            "uid": "uid-1",
        },
        "type": "Warning",
        "reason": "NotPlaceable",
        "action": "Explaining",
        "note": "no GPU is free",
    }


def test_repeats_are_counted_on_the_first_one():
    """A thousand times the same is one event, and few requests."""
    with recording() as (recorder, server, store, _time):
        for count in range(100):
            tell(recorder)
            asked(server, min(count + 1, 2))
    assert [request.method for request in server.asked] == ["POST", "PATCH", "PATCH"], "made, first repeat, end"
    (event,) = store.objects.values()
    assert event["series"]["count"] == 100


def test_count_is_written_again_after_a_minute():
    """A reader sees that it goes on happening."""
    with recording() as (recorder, server, _store, time):
        tell(recorder)
        tell(recorder)
        asked(server, 2)
        time.now += 61
        tell(recorder)
        assert asked(server, 3)[2].body["series"]["count"] == 3


def test_other_note_is_another_event():
    """What changes in the explanation must be seen."""
    with recording() as (recorder, server, store, _):
        tell(recorder)
        tell(recorder, note="no NIC is free")
        assert [request.method for request in asked(server, 2)] == ["POST", "POST"]
    assert len(store.objects) == 2


def test_event_that_was_deleted_is_made_anew():
    """Counting on an event that is gone makes a new one."""
    with recording() as (recorder, server, store, _):
        tell(recorder)
        asked(server, 1)
        store.objects.clear()
        tell(recorder)
        assert [request.method for request in asked(server, 3)] == ["POST", "PATCH", "POST"]


def test_repeat_after_the_event_has_expired_is_a_new_one():
    """Events live for an hour; counting on one about to go would lose the news."""
    with recording() as (recorder, server, _, time):
        tell(recorder)
        asked(server, 1)
        time.now += 3001
        tell(recorder)
        assert [request.method for request in asked(server, 2)] == ["POST", "POST"]


def test_object_without_namespace_is_told_in_default():
    """Events about nodes live in the namespace default."""
    with recording() as (recorder, server, _, _):
        tell(recorder, regarding=Regarding("v1", "Node", "node-a"))
        assert asked(server, 1)[0].path == "/apis/events.k8s.io/v1/namespaces/default/events"


def test_refused_event_is_logged_and_forgotten():
    """No right to write events is said once, at the first, second, fourth loss; the caller never notices."""
    with (
        capture_logs() as logs,
        recording(lambda _: lambda asked: refusal(403, "Forbidden")) as (recorder, server, _, _),
    ):
        for count in range(5):
            tell(recorder, note=str(count))
        asked(server, 5)
        recorder.stop()
        assert recorder.lost == 5
    assert [entry["lost"] for entry in logs] == [1, 2, 4]


def test_busy_server_is_tried_again():
    """A passing fault does not lose the event."""

    def once_busy(store):
        answers = iter([refusal(503, "ServiceUnavailable"), refusal(429, "TooManyRequests", Retry_After="7")])
        return lambda asked: next(answers, None) or store(asked)

    with recording(once_busy) as (recorder, server, store, time):
        tell(recorder)
        asked(server, 3)
    assert len(store.objects) == 1
    assert time.waits == [1.0, 7.0]
    assert recorder.lost == 0


def test_caller_never_waits_for_a_server_that_does_not_answer():
    """A full queue loses events instead of stopping a prepare; stop cuts the call that hangs."""
    with recording(lambda _: lambda asked: Silence()) as (recorder, server, _, _):
        tell(recorder, note="hangs")
        asked(server, 1)
        for count in range(QUEUE_LENGTH + 10):
            tell(recorder, note=str(count))
        assert recorder.lost == 10
        assert recorder.stop(timeout_seconds=0.05)
    assert threading.active_count() < 10


@given(text=st.text("aé…😀", max_size=600), limit=st.integers(3, 1024))
def test_cut_text_fits_and_is_whole_characters(text, limit):
    """Whatever the text, its bytes fit, and what is short enough is not touched."""
    short = cut(text, limit)
    assert len(short.encode()) <= limit
    if len(text.encode()) <= limit:
        assert short == text
    else:
        assert short.endswith("…")
        assert text.startswith(short[:-1])


def test_text_that_is_no_utf8_is_told_all_the_same():
    """A file's name in a reason may hold any byte, and telling must never cost the work."""
    assert cut("/etc/\udcff.json", 100) == "/etc/\\udcff.json"
    assert cut("\udcff" * 10, 10) == "\\udcff\\…"
