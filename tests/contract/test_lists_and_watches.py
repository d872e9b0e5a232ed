"""What lists and watches promise, asked of our API server and of the real one."""

import pytest

from tests.cluster.build import kubernetes_version
from tests.support.api_objects import CONFIG_MAPS, CRDS, SLICES, a_config_map, a_crd, a_slice
from tests.support.http_api import await_served


def _kinds(events):
    return [(e["type"], e["object"]["metadata"]["name"]) for e in events if e["type"] != "BOOKMARK"]


@pytest.fixture
def labelled(api, name):
    """Five maps under one label, which other tests do not see."""
    for i in range(5):
        labels = {"run": name, "size": "big" if i > 2 else "small", **({"odd": ""} if i % 2 else {})}
        api.post(CONFIG_MAPS, a_config_map(f"{name}-{i}", labels=labels))
    return f"run={name}"


def test_list_is_sorted_and_its_items_carry_no_kind(api, name, labelled):
    """A list of a built-in kind says its kind once, for the list."""
    listed = api.get(CONFIG_MAPS, labelSelector=labelled)
    assert (listed.body["kind"], listed.body["apiVersion"]) == ("ConfigMapList", "v1")
    assert listed.names == [f"{name}-{i}" for i in range(5)]
    assert not {"kind", "apiVersion"} & listed.body["items"][0].keys()
    assert listed.version.isdigit()


def test_pages_continue_where_the_last_one_ended(api, name, labelled):
    """A list in pages is the list as it was at its first page."""
    first = api.get(CONFIG_MAPS, labelSelector=labelled, limit=2)
    api.post(CONFIG_MAPS, a_config_map(f"{name}-3-late", labels={"run": name}))
    api.delete(f"{CONFIG_MAPS}/{name}-4")
    second = api.get(CONFIG_MAPS, labelSelector=labelled, limit=2, continue_=first.meta["continue"])
    third = api.get(CONFIG_MAPS, labelSelector=labelled, limit=2, continue_=second.meta["continue"])
    assert [*first.names, *second.names, *third.names] == [f"{name}-{i}" for i in range(5)]
    assert first.version == second.version == third.version
    assert "continue" not in third.meta


def test_page_without_selectors_counts_what_is_left(api, name, labelled):
    """remainingItemCount is given where nothing is selected."""
    page = api.get(CONFIG_MAPS, limit=1)
    assert page.meta["remainingItemCount"] >= 4
    assert "remainingItemCount" not in api.get(CONFIG_MAPS, labelSelector=labelled, limit=1).meta


def test_garbage_for_a_continue_token_is_a_bad_request(api):
    """A token that no list gave is refused."""
    assert api.get(CONFIG_MAPS, limit=1, continue_="garbage").status == 400


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("size=big", "34"),
        ("size==big,odd", "3"),
        ("size!=big", "012"),
        ("size in (big, huge)", "34"),
        ("size notin (big)", "012"),
        ("odd", "13"),
        ("!odd", "024"),
        ("size in (small),!odd", "02"),
    ],
)
def test_label_selectors(api, name, labelled, selector, chosen):
    """Equality, sets and presence, joined by commas."""
    found = api.get(CONFIG_MAPS, labelSelector=f"{labelled},{selector}")
    assert found.names == [f"{name}-{i}" for i in chosen]


@pytest.mark.parametrize("selector", ["size in big", "a=b=c", ",", "size in (big"])
def test_label_selector_that_cannot_be_parsed_is_a_bad_request(api, selector):
    """A selector with a mistake selects nothing and says so."""
    assert api.get(CONFIG_MAPS, labelSelector=selector).status == 400


def test_slices_are_selected_by_node_driver_and_pool(api, name):
    """The three field selectors of ResourceSlice, and the name."""
    api.post(SLICES, a_slice(name))
    api.post(SLICES, a_slice(f"{name}-b", driver=f"{name}.example.com"))
    both = [name, f"{name}-b"]
    assert api.get(SLICES, fieldSelector=f"spec.driver={name}.example.com").names == both
    assert api.get(SLICES, fieldSelector=f"spec.driver={name}.example.com,spec.nodeName={name}").names == [name]
    if not api.real or kubernetes_version() >= "v1.37":  # 1.36 cannot select by pool, and nothing of ours does
        assert api.get(SLICES, fieldSelector=f"spec.pool.name={name}-b").names == [f"{name}-b"]
    assert api.get(SLICES, fieldSelector=f"metadata.name={name}").names == [name]
    assert api.get(SLICES, fieldSelector=f"spec.driver={name}.example.com,metadata.name!={name}").names == both[1:]


@pytest.mark.parametrize(
    ("path", "selector", "message"),
    [
        (
            SLICES,
            "spec.devices=x",
            "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.devices",
        ),
        ("/api/v1/pods", "spec.nope=x", "field label not supported: spec.nope"),
        (CONFIG_MAPS, "data=x", '"data" is not a known field selector: only "metadata.name", "metadata.namespace"'),
    ],
)
def test_field_that_cannot_be_selected_by_is_a_bad_request(api, path, selector, message):
    """An unsupported field selector is refused, not ignored."""
    refused = api.get(path, fieldSelector=selector)
    assert (refused.status, refused.body["reason"]) == (400, "BadRequest")
    assert message in refused.body["message"]


def test_collection_is_deleted_by_selector(api, name):
    """Deleting a collection with a field selector spares the rest."""
    for n in (name, f"{name}-b", f"{name}-c"):
        api.post(SLICES, a_slice(n, driver=f"{name}.example.com", nodeName=name if n != f"{name}-c" else n))
    gone = api.delete(SLICES, fieldSelector=f"spec.driver={name}.example.com,spec.nodeName={name}")
    assert (gone.status, gone.body["kind"], gone.names) == (200, "ResourceSliceList", [name, f"{name}-b"])
    assert api.get(SLICES, fieldSelector=f"spec.driver={name}.example.com").names == [f"{name}-c"]


def test_watch_tells_changes_in_their_order(api, name):
    """From the version of a list on, every change comes once, whole, in order."""
    start = api.get(CONFIG_MAPS, limit=1).version
    api.post(CONFIG_MAPS, a_config_map(name, labels={"run": name}))
    changed = api.patch(f"{CONFIG_MAPS}/{name}", {"data": {"a": "1"}})
    api.delete(f"{CONFIG_MAPS}/{name}")
    told = []
    for event in api.watch(CONFIG_MAPS, resourceVersion=start, labelSelector=f"run={name}"):
        told.append(event)
        if event["type"] == "DELETED":
            break
    assert _kinds(told) == [("ADDED", name), ("MODIFIED", name), ("DELETED", name)]
    assert told[1]["object"] == changed.body
    versions = [int(e["object"]["metadata"]["resourceVersion"]) for e in told]
    assert versions == sorted(set(versions)), "a deletion has a version of its own"


def test_watch_without_a_version_starts_with_what_is_there(api, name, labelled):
    """Without a version, objects that exist come first, as added."""
    told = []
    for event in api.watch(CONFIG_MAPS, labelSelector=labelled):
        told.append(event)
        if len(told) == 5:
            break
    assert sorted(_kinds(told)) == [("ADDED", f"{name}-{i}") for i in range(5)]


def test_object_that_leaves_a_selection_is_deleted_for_its_watch(api, name):
    """For a watch with a selector, starting to match is being added, ceasing to match is being deleted."""
    start = api.post(CONFIG_MAPS, a_config_map(name, labels={"run": name})).version
    left = api.patch(f"{CONFIG_MAPS}/{name}", {"metadata": {"labels": {"run": "other"}}})
    back = api.patch(f"{CONFIG_MAPS}/{name}", {"metadata": {"labels": {"run": name}}})
    told = []
    for event in api.watch(CONFIG_MAPS, resourceVersion=start, labelSelector=f"run={name}"):
        told.append(event)
        if len(told) == 2:
            break
    assert _kinds(told) == [("DELETED", name), ("ADDED", name)]
    assert told[0]["object"]["metadata"]["resourceVersion"] == left.version
    assert told[0]["object"]["metadata"]["labels"] == {"run": name}, "as it was when it last matched"
    assert told[1]["object"] == back.body


def test_watch_ends_at_its_time_with_a_bookmark(api, name):
    """Before a watch with bookmarks ends it says how far it has come, also over changes that it did not tell."""
    start = api.get(CONFIG_MAPS, limit=1).version
    api.post(CONFIG_MAPS, a_config_map(name, labels={"run": name}))
    events = api.watch(CONFIG_MAPS, 4, resourceVersion=start, allowWatchBookmarks="true", labelSelector=f"run={name}")
    assert next(e for e in events if e["type"] == "ADDED")
    untold = api.post(CONFIG_MAPS, a_config_map(f"{name}-b"))
    last = list(events)[-1]
    assert last["type"] == "BOOKMARK"
    assert (last["object"]["kind"], last["object"]["apiVersion"]) == ("ConfigMap", "v1")
    assert int(last["object"]["metadata"]["resourceVersion"]) >= int(untold.version)
    assert "name" not in last["object"]["metadata"]


def test_watch_from_a_version_too_old_ends_with_410(api, name):
    """A version whose changes are no longer kept is an error event, and the watch ends."""
    group = f"{name}.example.com"
    api.post(CRDS, a_crd(group, {"type": "object"}))
    path = f"/apis/{group}/v1/widgets"
    await_served(api, path)
    api.age()
    told = list(api.watch(path, resourceVersion="1"))
    assert [e["type"] for e in told] == ["ERROR"]
    status = told[0]["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert status["message"].startswith("too old resource version: 1 (")


def test_list_from_a_version_of_the_future_times_out(api):
    """Nobody can list what is not there yet."""
    ahead = int(api.get(CONFIG_MAPS).version) + 1_000_000
    refused = api.get(CONFIG_MAPS, resourceVersion=ahead)
    assert (refused.status, refused.body["reason"]) == (504, "Timeout")
    assert refused.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


def test_version_that_is_no_number_is_refused(api):
    """A version is a number; where it is none, a list is a bad request, a watch by an oddity an error of the server."""
    assert api.get(CONFIG_MAPS, resourceVersion="garbage").status == 400
    assert api.get(CONFIG_MAPS, watch="true", resourceVersion="garbage", timeoutSeconds=1).status == 500
