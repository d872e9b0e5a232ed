"""What the store remembers, and for how long."""

from datetime import UTC, datetime

import pytest

from cli.sandbox.apiserver import ApiServer
from cli.sandbox.apiserver.store import CompactedError
from tests.support.api_objects import CONFIG_MAPS, a_config_map
from tests.support.http_api import HttpApi


def test_state_of_the_past_is_the_present_with_its_changes_undone(server):
    """Pages of a list need it."""
    store = server.store
    store.put(a_config_map("a", {"v": "1"}))
    then = store.version
    store.put(a_config_map("a", {"v": "2"}))
    store.put(a_config_map("b"))
    store.remove("configmaps", "a")
    assert [(k.name, o["data"]) for k, o in store.at("configmaps", then).items()] == [("a", {"v": "1"})]


def test_log_keeps_the_newest_changes_only():
    """Old versions cannot be watched from for ever."""
    server = ApiServer(keep_changes=10)
    for i in range(30):
        server.store.put(a_config_map(f"a{i}"))
    assert server.store.oldest > 0
    assert len(server.store.since(server.store.oldest)) == server.store.version - server.store.oldest
    with pytest.raises(CompactedError):
        server.store.since(server.store.oldest - 1)


def test_expired_page_offers_a_token_to_go_on_with(server, api):
    """410 for a token whose version is gone, with another that continues from now."""
    for i in range(4):
        api.post(CONFIG_MAPS, a_config_map(f"a{i}"))
    token = api.get(CONFIG_MAPS, limit=2).meta["continue"]
    api.post(CONFIG_MAPS, a_config_map("a3-late"))
    server.store.compact()
    refused = api.get(CONFIG_MAPS, limit=2, continue_=token)
    assert (refused.status, refused.body["reason"]) == (410, "Expired")
    rest = api.get(CONFIG_MAPS, continue_=refused.meta["continue"])
    assert rest.names == ["a2", "a3", "a3-late"]


def test_what_is_given_out_can_be_changed_without_harm(server):
    """Tests get copies."""
    server.store.put(a_config_map("a", {"v": "1"}))
    server.store.get("configmaps", "a")["data"]["v"] = "2"
    server.store.listed("configmaps")[0]["data"]["v"] = "2"
    assert server.store.get("configmaps", "a")["data"] == {"v": "1"}


def test_put_is_seen_by_watches(server, api):
    """Direct writes are events like all others."""
    start = server.store.version
    server.store.put(a_config_map("a"))
    server.store.put(a_config_map("a", {"v": "1"}))
    server.store.remove("configmaps", "a")
    events = api.watch(CONFIG_MAPS, 5, resourceVersion=start)
    assert [next(events)["type"] for _ in range(3)] == ["ADDED", "MODIFIED", "DELETED"]
    events.close()


def test_timestamps_come_from_the_given_clock():
    """A test decides what time it is."""
    with ApiServer(now=lambda: datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)) as server:
        api = HttpApi(server.url)
        assert api.post(CONFIG_MAPS, a_config_map("a")).meta["creationTimestamp"] == "2030-01-02T03:04:05Z"
        api.close()
