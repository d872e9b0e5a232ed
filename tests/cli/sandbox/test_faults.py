"""Faults come when they are ordered, as often as ordered, and to whom they are ordered."""

import threading

import pytest
from urllib3.exceptions import HTTPError

from cli.sandbox.apiserver import ApiServer
from tests.support.api_objects import CONFIG_MAPS, NODES, SLICES, a_config_map, a_device, a_slice
from tests.support.http_api import HttpApi

TAINT = {"key": "example.com/gone", "effect": "NoSchedule"}


def test_next_requests_fail_as_often_as_ordered(server, api):
    """The fault is for matching requests only, and wears out."""
    server.faults.fail(503, times=2, method="GET", path=CONFIG_MAPS, retry_after=1)
    assert api.get(NODES).status == 200
    refused = api.get(CONFIG_MAPS)
    assert (refused.status, refused.body["reason"], refused.body["code"]) == (503, "ServiceUnavailable", 503)
    assert [api.get(CONFIG_MAPS).status for _ in range(2)] == [503, 200]


def test_dropped_connection_hides_whether_a_write_happened(server, api):
    """A connection may be dropped before or after the write."""
    server.faults.drop(method="POST")
    with pytest.raises(HTTPError):
        api.post(CONFIG_MAPS, a_config_map("a"))
    assert server.store.get("configmaps", "a") is None
    server.faults.drop(method="POST", after_write=True)
    with pytest.raises(HTTPError):
        api.post(CONFIG_MAPS, a_config_map("b"))
    assert server.store.get("configmaps", "b")["metadata"]["name"] == "b"


def test_held_request_goes_on_when_released(server, api):
    """A request on hold has arrived and is not carried out."""
    hold = server.faults.hold(method="POST")
    posting = threading.Thread(target=api.post, args=(CONFIG_MAPS, a_config_map("a")))
    posting.start()
    assert hold.reached.wait(5)
    assert server.store.get("configmaps", "a") is None
    hold.release()
    posting.join(5)
    assert server.store.get("configmaps", "a") is not None


def test_stalled_watch_tells_later_what_it_kept_back(server, api):
    """A silent watch has no bookmarks either, and loses nothing."""
    server.faults.stall_watches()
    told = []

    def watch():
        for event in api.watch(CONFIG_MAPS, 10, resourceVersion=server.store.version, allowWatchBookmarks="true"):
            told.append(event["type"])
            if event["type"] == "ADDED":
                return

    watching = threading.Thread(target=watch)
    watching.start()
    assert server.wait_for_request(lambda r: "watch" in r.query)
    server.store.put(a_config_map("a"))
    watching.join(0.2)
    assert (watching.is_alive(), told) == (True, [])
    server.faults.resume_watches()
    watching.join(5)
    assert told == ["ADDED"]


def test_cut_connection_breaks_a_watch_in_the_middle(server, api):
    """The client sees a broken stream, not an end."""
    events = api.watch(CONFIG_MAPS, 10, allowWatchBookmarks="true")
    assert next(events)["type"] == "BOOKMARK"
    server.drop_connections()
    with pytest.raises(HTTPError):
        for _ in events:
            pass
    assert api.get(CONFIG_MAPS).status == 200


def test_disabled_features_drop_their_fields_without_a_word():
    """As with gates off: the write succeeds, and less comes back."""
    device = a_device(taints=[TAINT], consumesCounters=[{"counterSet": "s", "counters": {"c": {"value": "1"}}}])
    with ApiServer(feature_gates={"DRADeviceTaints": False, "DRAPartitionableDevices": False}) as server:
        api = HttpApi(server.url)
        made = api.post(SLICES, a_slice("a", [device]))
        assert (made.status, made.body["spec"]["devices"]) == (201, [{"name": "gpu-0"}])
        assert made.body["spec"]["nodeName"] == "a", "only the nodes of devices go, not that of the slice"
        api.close()


def test_disabled_field_stays_where_it_is_in_use(server, api):
    """A gate turned off does not strip what was stored before."""
    api.post(SLICES, a_slice("a", [a_device(taints=[TAINT])]))
    server.faults.drop_fields("taints", "allowMultipleAllocations")
    device = a_device(taints=[TAINT], allowMultipleAllocations=True)
    assert api.put(f"{SLICES}/a", a_slice("a", [device])).body["spec"]["devices"][0].keys() == {"name", "taints"}
    assert api.post(SLICES, a_slice("b", [device])).body["spec"]["devices"] == [{"name": "gpu-0"}]


def test_unknown_gate_is_an_error():
    """A misspelt gate would test nothing."""
    with pytest.raises(KeyError, match="DRATaints"):
        ApiServer(feature_gates={"DRATaints": False})


def test_cleared_faults_are_over(server, api):
    """Nothing of an earlier test stays."""
    server.faults.fail(500, times=9)
    server.faults.drop_fields("devices")
    server.faults.clear()
    assert api.post(SLICES, a_slice("a")).body["spec"]["devices"]
