"""What a CustomResourceDefinition makes the server do, asked of our API server and of the real one."""

import pytest

from tests.support.api_objects import CRDS, a_crd
from tests.support.http_api import STRATEGIC, await_served

ITEM = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "string"}, "model": {"type": "string"}, "bytes": {"type": "integer"}},
}
SCHEMA = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 9},
                "mode": {"type": "string", "enum": ["fast", "slow"], "default": "fast"},
                "name": {"type": "string", "pattern": "^x+$", "maxLength": 4},
                "words": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "phase": {"type": "string"},
                "gpus": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["id"],
                    "items": ITEM,
                },
            },
        },
    },
}


@pytest.fixture
def widgets(api, name):
    """The path of a kind that was just defined; afterwards it is gone."""
    group = f"{name}.example.com"
    assert api.post(CRDS, a_crd(group, SCHEMA)).status == 201
    path = f"/apis/{group}/v1/widgets"
    await_served(api, path)
    yield path
    api.delete(f"{CRDS}/widgets.{group}")


@pytest.fixture
def a_widget(name):
    def make(spec=None, **fields):
        whole = {"size": 3} if spec is None else spec
        meta = {"name": "w"}
        return {"apiVersion": f"{name}.example.com/v1", "kind": "Widget", "metadata": meta, "spec": whole, **fields}

    return make


def test_unknown_fields_are_dropped_and_defaults_filled_in(api, widgets, a_widget):
    """A custom resource is stored as its schema says."""
    spec = {"size": 3, "surprise": 1, "labels": {"a": "b"}, "free": {"x": {"y": 1}}}
    made = api.post(widgets, a_widget(spec, other=1))
    assert made.status == 201
    assert made.body["spec"] == {"size": 3, "mode": "fast", "labels": {"a": "b"}, "free": {"x": {"y": 1}}}
    assert "other" not in made.body


def test_items_of_a_list_of_custom_resources_carry_their_kind(api, widgets, a_widget):
    """Unlike those of built-in kinds."""
    api.post(widgets, a_widget())
    assert api.get(widgets).body["items"][0]["kind"] == "Widget"


def test_strict_write_refuses_unknown_fields(api, widgets, a_widget):
    """With fieldValidation=Strict a typo is an error."""
    refused = api.post(widgets, a_widget({"size": 3, "sise": 1}), fieldValidation="Strict")
    assert refused.status == 400
    assert 'strict decoding error: unknown field "spec.sise"' in refused.body["message"]


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ({}, ("FieldValueRequired", "spec.size", "Required value")),
        (
            {"size": "3"},
            (
                "FieldValueTypeInvalid",
                "spec.size",
                'Invalid value: "string": spec.size in body must be of type integer: "string"',
            ),
        ),
        (
            {"size": 0},
            (
                "FieldValueInvalid",
                "spec.size",
                "Invalid value: 0: spec.size in body should be greater than or equal to 1",
            ),
        ),
        (
            {"size": 10},
            (
                "FieldValueInvalid",
                "spec.size",
                "Invalid value: 10: spec.size in body should be less than or equal to 9",
            ),
        ),
        (
            {"size": 1, "mode": "odd"},
            (
                "FieldValueNotSupported",
                "spec.mode",
                'Unsupported value: "odd": supported values: "fast", "slow"',
            ),
        ),
        (
            {"size": 1, "name": "y"},
            ("FieldValueInvalid", "spec.name", "Invalid value: \"y\": spec.name in body should match '^x+$'"),
        ),
        ({"size": 1, "name": "xxxxx"}, ("FieldValueTooLong", "spec.name", "Too long: may not be more than 4 bytes")),
        (
            {"size": 1, "words": ["a", "b", "c"]},
            ("FieldValueTooMany", "spec.words", "Too many: 3: must have at most 2 items"),
        ),
    ],
)
def test_value_that_breaks_the_schema_is_refused(api, widgets, a_widget, spec, cause):
    """Each rule of the schema, in the words of the API."""
    refused = api.post(widgets, a_widget(spec))
    what, field, message = cause
    assert refused.status == 422
    assert refused.body["details"]["causes"] == [{"reason": what, "field": field, "message": message}]


def test_status_and_spec_are_written_through_different_paths(api, widgets, a_widget):
    """Status by /status only and without a new generation; everything else by the main path only."""
    made = api.post(widgets, a_widget(status={"phase": "Early"}))
    assert "status" not in made.body
    path = f"{widgets}/w"
    assert api.patch(path, {"status": {"phase": "Wrong"}}).version == made.version
    patch = {"status": {"phase": "Ready"}, "spec": {"size": 9}, "metadata": {"labels": {"a": "b"}}}
    ready = api.patch(f"{path}/status", patch)
    assert (ready.body["status"], ready.body["spec"]["size"]) == ({"phase": "Ready"}, 3)
    assert (ready.meta["generation"], "labels" in ready.meta) == (1, False)
    resized = api.put(path, {**ready.body, "spec": {"size": 4}, "status": {"phase": "Wrong"}})
    assert (resized.body["status"], resized.meta["generation"]) == ({"phase": "Ready"}, 2)


def test_custom_resource_is_not_replaced_blindly(api, widgets, a_widget):
    """A replace has to say which version it replaces; a strategic patch is not for custom resources."""
    api.post(widgets, a_widget())
    refused = api.put(f"{widgets}/w", a_widget())
    assert (refused.status, refused.body["details"]["causes"][0]["field"]) == (422, "metadata.resourceVersion")
    assert api.patch(f"{widgets}/w", {}, STRATEGIC).status == 415


def test_items_are_applied_by_the_keys_of_the_schema(api, widgets, a_widget):
    """Appliers of a status own items and their fields one by one."""
    api.post(widgets, a_widget())
    path = f"{widgets}/w/status"

    def apply(manager, *gpus, **query):
        return api.apply(path, a_widget(status={"gpus": list(gpus)}), manager, **query)

    apply("one", {"id": "0", "model": "A"}, {"id": "1", "model": "A"})
    both = apply("two", {"id": "1", "bytes": 5}, {"id": "2", "model": "B"})
    assert both.body["status"]["gpus"] == [
        {"id": "0", "model": "A"},
        {"id": "1", "model": "A", "bytes": 5},
        {"id": "2", "model": "B"},
    ]
    refused = apply("two", {"id": "0", "model": "C"})
    assert refused.body["details"]["causes"][0]["field"] == '.status.gpus[id="0"].model'
    left = apply("one", {"id": "0", "model": "A"})
    assert left.body["status"]["gpus"] == [
        {"id": "0", "model": "A"},
        {"id": "1", "bytes": 5},
        {"id": "2", "model": "B"},
    ]
    assert apply("one", {"id": "0", "model": "A"}).version == left.version


def test_status_is_not_applied_to_a_missing_object(api, widgets, a_widget):
    """Applying a status creates nothing."""
    assert api.apply(f"{widgets}/w/status", a_widget(status={}), "one").status == 404


def test_definition_goes_with_its_objects(api, widgets, a_widget, name):
    """Without its definition a kind is served no more, and a new one starts empty."""
    api.post(widgets, a_widget())
    crd = f"{CRDS}/widgets.{name}.example.com"
    version = api.get(CRDS).version
    api.delete(crd)
    for event in api.watch(
        CRDS, 20, resourceVersion=version, fieldSelector=f"metadata.name=widgets.{name}.example.com"
    ):
        if event["type"] == "DELETED":
            break
    api.post(CRDS, a_crd(f"{name}.example.com", SCHEMA))
    await_served(api, widgets)
    assert api.get(widgets).names == []
