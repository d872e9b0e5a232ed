"""What server-side apply promises, asked of our API server and of the real one."""

import pytest

from tests.support.api_objects import CONFIG_MAPS, SLICES, a_config_map, a_device, a_slice


def _owned(answer):
    """Who owns which data keys."""
    entries = answer.meta.get("managedFields", [])
    return {
        (e["manager"], e["operation"]): sorted(k[2:] for k in e["fieldsV1"].get("f:data", {}) if k != ".")
        for e in entries
    }


@pytest.fixture
def path(name):
    return f"{CONFIG_MAPS}/{name}"


def test_apply_creates_what_is_missing_and_then_changes_nothing(api, name, path):
    """The first apply creates, the second of the same makes no version."""
    made = api.apply(path, a_config_map(name, {"a": "1"}), "one")
    assert made.status == 201
    assert _owned(made) == {("one", "Apply"): ["a"]}
    again = api.apply(path, a_config_map(name, {"a": "1"}), "one")
    assert (again.status, again.body) == (200, made.body)


def test_field_that_an_applier_no_longer_lists_goes(api, name, path):
    """What only this applier owned is removed when it leaves it out."""
    api.apply(path, a_config_map(name, {"a": "1", "b": "2"}), "one")
    assert api.apply(path, a_config_map(name, {"b": "2"}), "one").body["data"] == {"b": "2"}
    assert "data" not in api.apply(path, a_config_map(name), "one").body


def test_field_that_somebody_else_owns_too_stays(api, name, path):
    """Agreeing on a value is owning it together; it goes with its last owner."""
    api.apply(path, a_config_map(name, {"a": "1"}), "one")
    both = api.apply(path, a_config_map(name, {"a": "1"}), "two")
    assert _owned(both) == {("one", "Apply"): ["a"], ("two", "Apply"): ["a"]}
    left = api.apply(path, a_config_map(name), "one")
    assert (left.body["data"], _owned(left)) == ({"a": "1"}, {("two", "Apply"): ["a"]})


def test_changing_a_field_of_another_applier_is_a_conflict(api, name, path):
    """A conflict names the manager and the field, in message and causes."""
    made = api.apply(path, a_config_map(name, {"a": "1"}), "one")
    refused = api.apply(path, a_config_map(name, {"a": "2", "b": "3"}), "two")
    assert refused.status == 409
    assert refused.body["reason"] == "Conflict"
    assert refused.body["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.a'
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.a"}
    assert refused.body["details"] == {"causes": [cause]}
    assert api.get(path).body == made.body


def test_conflicts_with_several_managers_are_listed_by_manager(api, name, path):
    """A manager that updated is named with the version it used."""
    api.apply(path, a_config_map(name, {"b": "1"}), "one")
    api.patch(path, {"data": {"a": "1"}})
    refused = api.apply(path, a_config_map(name, {"a": "2", "b": "2"}), "two")
    assert refused.body["message"] == (
        'Apply failed with 2 conflicts: conflicts with "contract" using v1:\n- .data.a\nconflicts with "one":\n- .data.b'
    )


def test_force_takes_the_field_over(api, name, path):
    """A forced apply becomes the only owner of what it changed."""
    api.apply(path, a_config_map(name, {"a": "1"}), "one")
    forced = api.apply(path, a_config_map(name, {"a": "2"}), "two", force=True)
    assert (forced.status, forced.body["data"], _owned(forced)) == (200, {"a": "2"}, {("two", "Apply"): ["a"]})


def test_update_takes_the_field_over(api, name, path):
    """A plain write never conflicts; it takes what it changed."""
    api.apply(path, a_config_map(name, {"a": "1", "b": "1"}), "one")
    changed = api.patch(path, {"data": {"a": "2"}})
    assert _owned(changed) == {("one", "Apply"): ["b"], ("contract", "Update"): ["a"]}


def test_items_of_owners_and_finalizers_are_owned_one_by_one(api, name, path):
    """Two appliers each add their owner and finalizer, and each removes only its own."""
    holder = api.post(CONFIG_MAPS, a_config_map(f"{name}-holder")).meta["uid"]
    other = api.post(CONFIG_MAPS, a_config_map(f"{name}-other")).meta["uid"]

    def config(who, uid):
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": f"{name}-{who}", "uid": uid}
        return a_config_map(name, ownerReferences=[reference], finalizers=[f"{who}.example.com/wait"])

    api.apply(path, config("holder", holder), "one")
    both = api.apply(path, config("other", other), "two")
    assert {o["uid"] for o in both.meta["ownerReferences"]} == {holder, other}
    assert both.meta["finalizers"] == ["holder.example.com/wait", "other.example.com/wait"]
    left = api.apply(path, a_config_map(name), "one")
    assert [o["uid"] for o in left.meta["ownerReferences"]] == [other]
    assert left.meta["finalizers"] == ["other.example.com/wait"]
    api.apply(path, a_config_map(name), "two")


def test_devices_of_a_slice_are_one_value(api, name):
    """The list of devices is atomic: applying another list replaces it whole."""
    path = f"{SLICES}/{name}"
    api.apply(path, a_slice(name, [a_device("a"), a_device("b")]), "one")
    assert [d["name"] for d in api.apply(path, a_slice(name, [a_device("c")]), "one").body["spec"]["devices"]] == ["c"]
    refused = api.apply(path, a_slice(name, [a_device("d")]), "two")
    assert refused.body["details"]["causes"][0]["field"] == ".spec.devices"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"metadata": {"managedFields": [{"manager": "x"}]}}, 400),
        ({"metadata": {"name": "other"}}, 400),
        ({"metadata": {"resourceVersion": "1"}}, 409),
        ({"metadata": {"uid": "11111111-1111-1111-1111-111111111111"}}, 422),
        ({"apiVersion": None}, 400),
    ],
    ids=["managed fields", "other name", "old version", "other uid", "no version"],
)
def test_configuration_that_does_not_fit_the_object_is_refused(api, name, path, change, code):
    """Name, version, uid and kind in a configuration are those of the object."""
    api.post(CONFIG_MAPS, a_config_map(name))
    config = a_config_map(name)
    config["metadata"] |= change.get("metadata", {})
    config |= {k: v for k, v in change.items() if k != "metadata"}
    assert api.apply(path, config, "one").status == code


def test_apply_needs_a_manager(api, name, path):
    """Nobody applies anonymously, and only an apply can be forced."""
    refused = api.patch(path, a_config_map(name), "application/apply-patch+yaml")
    assert (refused.status, refused.body["details"]["causes"][0]["field"]) == (422, "fieldManager")
    api.post(CONFIG_MAPS, a_config_map(name))
    assert api.patch(path, {}, force=True).status == 422


def test_unknown_field_in_a_configuration_fails(api, name):
    """Apply knows the schema: a field that is not there is an error, where other writes drop it."""
    path = f"{SLICES}/{name}"
    failed = api.apply(path, a_slice(name, surprise=1), "one")
    assert failed.status == 500
    assert ".spec.surprise: field not declared in schema" in failed.body["message"]
    made = api.post(SLICES, a_slice(name, surprise=1))
    assert (made.status, "surprise" in made.body["spec"]) == (201, False)
