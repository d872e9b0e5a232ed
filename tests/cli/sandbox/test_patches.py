"""Patches, selectors and quantities in their corners, without a server around them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.sandbox.apiserver.fieldsets import from_fields_v1, to_fields_v1
from cli.sandbox.apiserver.patches import json_patch, merge_patch, strategic_patch
from cli.sandbox.apiserver.quantity import canonical, value_of
from cli.sandbox.apiserver.shapes import fields, keyed
from cli.sandbox.apiserver.statuses import ApiError


def test_json_patch_moves_and_copies():
    """RFC 6902, sections 4.4 and 4.5."""
    operations = [
        {"op": "move", "from": "/a/0", "path": "/b"},
        {"op": "copy", "from": "/b", "path": "/a/-"},
        {"op": "replace", "path": "/a/0", "value": 9},
    ]
    assert json_patch({"a": [1, 2]}, operations) == {"a": [9, 1], "b": 1}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/none"},
        {"op": "replace", "path": "/none", "value": 1},
        {"op": "add", "path": "/a/7", "value": 1},
        {"op": "turn", "path": "/a"},
        {"op": "add", "path": "a", "value": 1},
    ],
)
def test_json_patch_that_does_not_fit_is_refused(operation):
    """No half patches."""
    with pytest.raises(ApiError) as refused:
        json_patch({"a": [1]}, [operation])
    assert refused.value.code == 422


def test_strategic_patch_deletes_and_replaces_by_directive():
    """`$patch` says what a plain value cannot."""
    shape = fields(items=keyed("name"))
    target = {"items": [{"name": "a", "v": 1}, {"name": "b", "v": 2}], "map": {"x": 1}}
    patch = {"items": [{"name": "a", "$patch": "delete"}, {"name": "b", "w": 3}], "map": {"$patch": "replace", "y": 2}}
    assert strategic_patch(target, patch, shape) == {"items": [{"name": "b", "v": 2, "w": 3}], "map": {"y": 2}}


json_values = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)


@given(json_values, json_values)
def test_merge_patch_is_idempotent(target, patch):
    """Applying a merge patch twice is applying it once."""
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


steps = st.sampled_from(["f:a", "f:b", 'k:{"id":"1"}', 'v:"x"', "f:.x"])


@given(st.frozensets(st.lists(steps, min_size=1, max_size=4).map(tuple)))
def test_field_sets_survive_their_stored_form(paths):
    """What managedFields say is what was meant."""
    assert from_fields_v1(to_fields_v1(paths)) == paths


@given(st.integers(0, 10**15), st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi"]))
def test_canonical_quantity_is_the_same_amount_and_stays(number, suffix):
    """Writing back what was read changes nothing."""
    once = canonical(f"{number}{suffix}")
    assert value_of(once)[0] == value_of(f"{number}{suffix}")[0]
    assert canonical(once) == once
