"""What every API server promises that Lanewise leans on; each promise is asked of ours and of the real one."""

import pytest

from tests.support.api_objects import CONFIG_MAPS, LEASES, NODES, SLICES, a_config_map, a_lease, a_slice
from tests.support.http_api import JSON_PATCH, MERGE, STRATEGIC

NOT_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def _failure(code, reason, message, details):
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
        "code": code,
    }


def test_created_object_comes_back_with_what_the_server_gives(api, name):
    """A create answers 201 with the object, its uid, version, time and first generation."""
    made = api.post(SLICES, a_slice(name))
    assert made.status == 201
    assert made.meta["uid"] and made.version.isdigit() and made.meta["creationTimestamp"].endswith("Z")
    assert made.meta["generation"] == 1
    assert made.body["kind"] == "ResourceSlice"
    assert api.get(f"{SLICES}/{name}").body == made.body


def test_missing_object_is_said_with_its_resource_and_name(api, name):
    """A 404 names the object in message and details."""
    missing = api.get(f"{SLICES}/{name}")
    message = f'resourceslices.resource.k8s.io "{name}" not found'
    details = {"name": name, "group": "resource.k8s.io", "kind": "resourceslices"}
    assert (missing.status, missing.body) == (404, _failure(404, "NotFound", message, details))
    assert api.get(f"{NODES}/{name}").body["details"] == {"name": name, "kind": "nodes"}


def test_second_create_under_a_name_is_refused(api, name):
    """AlreadyExists for a taken name."""
    api.post(CONFIG_MAPS, a_config_map(name))
    again = api.post(CONFIG_MAPS, a_config_map(name))
    message = f'configmaps "{name}" already exists'
    assert again.body == _failure(409, "AlreadyExists", message, {"name": name, "kind": "configmaps"})


def test_create_without_a_name_is_invalid(api):
    """A name or a generateName there must be."""
    refused = api.post(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})
    cause = {
        "reason": "FieldValueRequired",
        "message": "Required value: name or generateName is required",
        "field": "metadata.name",
    }
    message = 'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required'
    assert refused.body == _failure(422, "Invalid", message, {"kind": "ConfigMap", "causes": [cause]})


def test_create_in_a_missing_namespace_is_not_found(api, name):
    """The namespace has to be there first."""
    refused = api.post(f"/api/v1/namespaces/{name}/configmaps", a_config_map("a"))
    assert (refused.status, refused.body["message"]) == (404, f'namespaces "{name}" not found')


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (a_config_map("a") | {"kind": "Secret"}, 400),
        (a_config_map("a") | {"apiVersion": "v2"}, 400),
        (a_config_map("a", namespace="kube-system"), 400),
        (b"{", 400),
    ],
    ids=["other kind", "other version", "other namespace", "no JSON"],
)
def test_body_that_does_not_fit_the_path_is_a_bad_request(api, body, code):
    """Kind, version and namespace of a body are those of its path."""
    assert api.post(CONFIG_MAPS, body).status == code


def test_generated_name_is_cut_to_leave_room_for_five_letters(api, name):
    """The base of a generated name is cut to 58 bytes, the whole is a label."""
    base = f"{name}-{'x' * 80}"
    body = a_slice(name)
    body["metadata"] = {"generateName": base}
    made = api.post(SLICES, body).meta
    assert made["name"].startswith(base[:58]) and len(made["name"]) == 63
    assert set(made["name"][58:]) <= set("bcdfghjklmnpqrstvwxz2456789")
    assert made["generateName"] == base


def test_write_with_an_old_version_is_a_conflict(api, name):
    """The version in a replace has to be the stored one."""
    old = api.post(CONFIG_MAPS, a_config_map(name, {"a": "1"})).body
    api.put(f"{CONFIG_MAPS}/{name}", a_config_map(name, {"a": "2"}))
    refused = api.put(f"{CONFIG_MAPS}/{name}", old)
    message = f'Operation cannot be fulfilled on configmaps "{name}": {NOT_MODIFIED}'
    assert refused.body == _failure(409, "Conflict", message, {"name": name, "kind": "configmaps"})


def test_replace_without_a_version_is_for_kinds_that_allow_it(api, name):
    """A ConfigMap may be replaced blindly, a Lease may not."""
    api.post(CONFIG_MAPS, a_config_map(name))
    assert api.put(f"{CONFIG_MAPS}/{name}", a_config_map(name, {"a": "2"})).status == 200
    api.post(LEASES, a_lease(name))
    refused = api.put(f"{LEASES}/{name}", a_lease(name))
    assert refused.status == 422
    assert refused.body["details"]["causes"][0]["field"] == "metadata.resourceVersion"


def test_replace_that_changes_nothing_makes_no_version(api, name):
    """Writing what is there already is no write."""
    made = api.post(CONFIG_MAPS, a_config_map(name, {"a": "1"}))
    assert api.put(f"{CONFIG_MAPS}/{name}", made.body).version == made.version
    assert api.patch(f"{CONFIG_MAPS}/{name}", {"data": {"a": "1"}}).version == made.version


def test_replace_of_a_missing_object_creates_only_some_kinds(api, name):
    """A Lease comes into being by PUT, a ConfigMap does not."""
    assert api.put(f"{CONFIG_MAPS}/{name}", a_config_map(name)).status == 404
    assert api.put(f"{LEASES}/{name}", a_lease(name)).status == 201


def test_name_in_a_replace_is_that_of_the_path(api, name):
    """Another name in the body is a bad request."""
    api.post(CONFIG_MAPS, a_config_map(name))
    assert api.put(f"{CONFIG_MAPS}/{name}", a_config_map("other")).status == 400


def test_uid_of_another_object_in_a_write_is_a_conflict(api, name):
    """Whoever means a certain object does not hit its successor."""
    api.post(CONFIG_MAPS, a_config_map(name))
    refused = api.put(f"{CONFIG_MAPS}/{name}", a_config_map(name, uid="11111111-1111-1111-1111-111111111111"))
    assert (refused.status, refused.body["reason"]) == (409, "Conflict")
    assert "Precondition failed: UID in precondition: 11111111" in refused.body["message"]


def test_delete_with_the_uid_of_another_object_is_a_conflict(api, name):
    """A delete with preconditions spares an object of the same name."""
    made = api.post(SLICES, a_slice(name))
    path = f"{SLICES}/{name}"
    options = {"apiVersion": "v1", "kind": "DeleteOptions"}
    other = options | {"preconditions": {"uid": "11111111-1111-1111-1111-111111111111"}}
    refused = api.delete(path, other)
    assert (refused.status, refused.body["reason"]) == (409, "Conflict")
    assert refused.body["message"].startswith(
        f'Operation cannot be fulfilled on ResourceSlice.resource.k8s.io "{name}": the UID in the precondition '
    )
    stale = options | {"preconditions": {"uid": made.meta["uid"], "resourceVersion": "1"}}
    assert api.delete(path, stale).status == 409
    meant = options | {"preconditions": {"uid": made.meta["uid"], "resourceVersion": made.version}}
    gone = api.delete(path, meant)
    assert (gone.status, gone.body["kind"]) == (200, "ResourceSlice")
    assert api.delete(path).status == 404


def test_delete_of_a_config_map_answers_with_a_status(api, name):
    """Kinds that do not give the deleted object back say that it worked."""
    made = api.post(CONFIG_MAPS, a_config_map(name))
    gone = api.delete(f"{CONFIG_MAPS}/{name}")
    details = {"name": name, "kind": "configmaps", "uid": made.meta["uid"]}
    expected = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    assert (gone.status, gone.body) == (200, expected)


def test_finalizer_keeps_a_deleted_object_until_it_is_removed(api, name):
    """Deleting only marks an object that has finalizers; removing the last one ends it."""
    api.post(CONFIG_MAPS, a_config_map(name, finalizers=["example.com/wait"]))
    path = f"{CONFIG_MAPS}/{name}"
    marked = api.delete(path)
    assert marked.meta["deletionTimestamp"] and marked.meta["deletionGracePeriodSeconds"] == 0
    more = {"metadata": {"finalizers": ["example.com/wait", "example.com/more"]}}
    assert api.patch(path, more).status == 422
    assert api.get(path).status == 200
    assert api.patch(path, {"metadata": {"finalizers": None}}).status == 200
    assert api.get(path).status == 404


def test_system_metadata_cannot_be_changed(api, name):
    """Creation time, uid and generation are the server's, whatever a patch says."""
    made = api.post(SLICES, a_slice(name))
    patch = {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 77, "labels": {"a": "b"}}}
    changed = api.patch(f"{SLICES}/{name}", patch)
    assert changed.status == 200
    assert changed.meta["creationTimestamp"] == made.meta["creationTimestamp"]
    assert changed.meta["generation"] == 1, "labels are no change of the spec"


def test_generation_counts_changes_of_the_spec(api, name):
    """Each change of a slice's spec is a new generation."""
    api.post(SLICES, a_slice(name))
    changed = api.patch(f"{SLICES}/{name}", {"spec": {"pool": {"generation": 2}}})
    assert changed.meta["generation"] == 2


def test_patches_of_three_sorts(api, name):
    """A merge patch removes by null, a JSON patch by operation, a strategic one knows the keys of lists."""
    path = f"{CONFIG_MAPS}/{name}"
    api.post(CONFIG_MAPS, a_config_map(name, {"a": "1", "b": "2"}))
    assert api.patch(path, {"data": {"a": None, "c": "3"}}, MERGE).body["data"] == {"b": "2", "c": "3"}
    operations = [
        {"op": "test", "path": "/data/b", "value": "2"},
        {"op": "remove", "path": "/data/b"},
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": "/metadata/annotations/x.example.com~1y", "value": "4"},
    ]
    patched = api.patch(path, operations, JSON_PATCH)
    assert (patched.body["data"], patched.meta["annotations"]) == ({"c": "3"}, {"x.example.com/y": "4"})
    owners = [
        {"apiVersion": "v1", "kind": "Node", "name": n, "uid": f"{n * 8}-1111-1111-1111-111111111111"}
        for n in ("a", "b")
    ]
    for owner in owners:
        patch = {"metadata": {"ownerReferences": [owner], "finalizers": ["example.com/wait"]}}
        patched = api.patch(path, patch, STRATEGIC)
        assert patched.status == 200, patched.body
    assert sorted(o["name"] for o in patched.meta["ownerReferences"]) == ["a", "b"]
    api.patch(path, {"metadata": {"finalizers": None}})


def test_failed_test_of_a_json_patch_changes_nothing(api, name):
    """A JSON patch whose test fails is refused as invalid."""
    made = api.post(CONFIG_MAPS, a_config_map(name, {"a": "1"}))
    operations = [{"op": "test", "path": "/data/a", "value": "2"}, {"op": "remove", "path": "/data/a"}]
    refused = api.patch(f"{CONFIG_MAPS}/{name}", operations, JSON_PATCH)
    assert (refused.status, refused.body["reason"]) == (422, "Invalid")
    assert api.get(f"{CONFIG_MAPS}/{name}").version == made.version


def test_patch_of_an_unknown_sort_is_an_unsupported_media_type(api, name):
    """A patch has to say of which of the four sorts it is."""
    api.post(CONFIG_MAPS, a_config_map(name))
    refused = api.patch(f"{CONFIG_MAPS}/{name}", {}, "application/json")
    assert (refused.status, refused.body["reason"]) == (415, "UnsupportedMediaType")


def test_stale_version_in_a_patch_is_a_conflict(api, name):
    """A patch that carries a version is carried out on that version only."""
    api.post(CONFIG_MAPS, a_config_map(name))
    refused = api.patch(f"{CONFIG_MAPS}/{name}", {"metadata": {"resourceVersion": "1"}, "data": {"a": "1"}})
    assert (refused.status, refused.body["reason"]) == (409, "Conflict")


def test_dry_run_changes_nothing(api, name):
    """dryRun=All answers as a write would, and writes nothing."""
    tried = api.post(CONFIG_MAPS, a_config_map(name), dryRun="All")
    assert (tried.status, tried.meta["name"]) == (201, name)
    assert api.get(f"{CONFIG_MAPS}/{name}").status == 404
    made = api.post(CONFIG_MAPS, a_config_map(name, {"a": "1"}))
    assert api.patch(f"{CONFIG_MAPS}/{name}", {"data": {"a": "2"}}, dryRun="All").body["data"] == {"a": "2"}
    api.delete(f"{CONFIG_MAPS}/{name}", dryRun="All")
    assert api.get(f"{CONFIG_MAPS}/{name}").body == made.body


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/apis/nobody.example.com/v1/things", 404),
        ("GET", "/api/v1/things", 404),
        ("GET", "/apis/resource.k8s.io/v1/resourceslices/a/status", 404),
        ("GET", "/nothing", 404),
        ("POST", "/api/v1/nodes/a", 405),
        ("PUT", "/api/v1/nodes", 405),
        ("POST", "/api/v1/configmaps", 405),
    ],
)
def test_paths_and_methods_that_are_not_there(api, method, path, code):
    """Unknown paths are 404, methods a path does not offer are 405."""
    assert api.request(method, path, {} if method != "GET" else None).status == code


def test_discovery_lists_the_resources_of_a_group(api):
    """A group's resources come with kind, scope and verbs."""
    listed = api.get("/apis/resource.k8s.io/v1").body["resources"]
    slices = next(r for r in listed if r["name"] == "resourceslices")
    assert (slices["kind"], slices["namespaced"]) == ("ResourceSlice", False)
    assert {"create", "delete", "get", "list", "patch", "update", "watch"} <= set(slices["verbs"])
    assert "resourceclaims/status" in {r["name"] for r in listed}
    assert "v1" in api.get("/api").body["versions"]
    assert "resource.k8s.io" in {g["name"] for g in api.get("/apis").body["groups"]}
    assert api.get("/version").body["major"] == "1"
    assert (api.get("/readyz").status, api.get("/readyz").body) == (200, "ok")


def test_owned_object_goes_after_its_owner(api, name):
    """What is owned by an object that was deleted is collected."""
    owner = api.post(CONFIG_MAPS, a_config_map(name))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owner.meta["uid"]}
    owned = api.post(CONFIG_MAPS, a_config_map(f"{name}-owned", ownerReferences=[reference]))
    api.delete(f"{CONFIG_MAPS}/{name}")
    events = api.watch(CONFIG_MAPS, 20, resourceVersion=owned.version, fieldSelector=f"metadata.name={name}-owned")
    assert next(e for e in events if e["type"] == "DELETED")["object"]["metadata"]["name"] == f"{name}-owned"


def test_event_of_the_new_kind_is_seen_as_one_of_the_old(api, name):
    """events.k8s.io and core show the same events under their own field names."""
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name},
        "eventTime": "2026-11-30T12:00:00.000000Z",
        "action": "Prepare",
        "reason": "Refused",
        "type": "Warning",
        "note": "the device is held",
        "reportingController": "gpu.lanewise.dev",
        "reportingInstance": "node-a",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": name, "namespace": "default"},
    }
    made = api.post("/apis/events.k8s.io/v1/namespaces/default/events", event)
    assert made.status == 201, made.body
    old = api.get(f"/api/v1/namespaces/default/events/{name}").body
    assert (old["message"], old["involvedObject"]["name"]) == ("the device is held", name)
    assert old["reportingComponent"] == "gpu.lanewise.dev"
    found = api.get("/api/v1/namespaces/default/events", fieldSelector=f"involvedObject.name={name}")
    assert found.names == [name]
