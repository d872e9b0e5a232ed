"""Which fields an object has, as sets of paths: what managedFields record and server-side apply compares.

A path is a tuple of steps. A step is the text managedFields use for it: `f:name` a field, `k:{...}` an item of a keyed
list, `v:...` an item of a set.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from cli.sandbox.apiserver.shapes import Shape

Path = tuple[str, ...]
FieldSet = frozenset[Path]
Flat = dict[Path, Any]

ITEM = object()
"""The value of a path that stands for the mere presence of a list item or of a key in a free-form map."""

# Never owned by anybody: pkg/util/managedfields/internal/stripmeta.go.
SYSTEM_FIELDS: FieldSet = frozenset(
    {("f:apiVersion",), ("f:kind",)}
    | {
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    }
)


class DuplicateItemError(ValueError):
    """Two items of a keyed list under one key, or an item without any of its keys."""


def flatten(value: Any, shape: Shape) -> Flat:
    """Every leaf of a value with its path; atomic lists and maps, nulls and empty maps are leaves."""
    flat: Flat = {}
    _flatten(value, shape, (), flat)
    return flat


def _flatten(value: Any, shape: Shape, at: Path, flat: Flat) -> None:
    if isinstance(value, Mapping) and value and not shape.atomic:
        for name, sub in value.items():
            here = (*at, f"f:{name}")
            if shape.is_free_key(name):
                flat[here] = ITEM if isinstance(sub, Mapping | list) else sub
            _flatten(sub, shape.child(name), here, flat)
    elif isinstance(value, list) and shape.lists != "atomic":
        for step, item in items_by_step(value, shape, at).items():
            here = (*at, step)
            if shape.lists == "set":
                flat[here] = item
            else:
                flat[here] = ITEM
                _flatten(item, shape.item(), here, flat)
    else:
        flat[at] = value


def items_by_step(items: Iterable[Any], shape: Shape, at: Path = ()) -> dict[str, Any]:
    """The items of a set or keyed list by their steps, in their order; DuplicateItemError when two have the same."""
    named: dict[str, Any] = {}
    for item in items:
        step = step_of(item, shape)
        if step is None:
            raise DuplicateItemError(
                f"{dotted(at)}: element has none of the key fields "
                + ", ".join(f'"{k}"' for k in shape.keys)
                + " that tell the items of this list apart"
            )
        if step in named:
            raise DuplicateItemError(f"{dotted(at)}: duplicate entries for key {dotted((step,))}")
        named[step] = item
    return named


def step_of(item: Any, shape: Shape) -> str | None:
    """The step of one item; None when it has no key."""
    if shape.lists == "set":
        return "v:" + _json(item)
    if not isinstance(item, Mapping):
        return None
    filled = {**shape.key_defaults, **item}
    keys = {k: filled[k] for k in sorted(shape.keys) if filled.get(k) is not None}
    return "k:" + _json(keys) if keys else None


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def containers(value: Any, shape: Shape, at: Path = ()) -> dict[Path, bool]:
    """The paths of maps and merged lists inside a value, and whether each is free-form rather than a plain struct.

    A write that makes such a container owns it as well as what it holds; structs of typed kinds are always there.
    """
    found: dict[Path, bool] = {}
    if isinstance(value, Mapping) and not shape.atomic:
        if at:
            found[at] = at[-1] in ("f:labels", "f:annotations", "f:data")
        for name, sub in value.items():
            found |= containers(sub, shape.child(name), (*at, f"f:{name}"))
    elif isinstance(value, list) and shape.lists != "atomic":
        found[at] = True
        for item in value:
            inner = containers(item, shape.item(), (*at, step_of(item, shape) or ""))
            found |= {path: free for path, free in inner.items() if len(path) > len(at) + 1}
    return found


def differences(old: Flat, new: Flat) -> tuple[FieldSet, FieldSet]:
    """Paths that `new` has with another value or in addition, and paths that only `old` has."""
    changed = frozenset(path for path, value in new.items() if path not in old or old[path] != value)
    return changed, frozenset(old.keys() - new.keys())


def with_parents(paths: FieldSet) -> FieldSet:
    """The paths with every path above them."""
    return frozenset(path[:n] for path in paths for n in range(1, len(path) + 1))


def to_fields_v1(paths: FieldSet) -> dict[str, Any]:
    """The nested form managedFields store."""
    tree: dict[str, Any] = {}
    for path in sorted(paths):
        node = tree
        for step in path:
            node = node.setdefault(step, {})
        node["."] = {}
    return _without_lonely_dots(tree)


def _without_lonely_dots(tree: dict[str, Any]) -> dict[str, Any]:
    return {step: {} if sub.keys() <= {"."} else _without_lonely_dots(sub) for step, sub in tree.items()}


def from_fields_v1(tree: Mapping[str, Any]) -> FieldSet:
    """The paths behind a fieldsV1 value."""
    found: set[Path] = set()

    def walk(node: Mapping[str, Any], at: Path) -> None:
        if at and (not node or "." in node):
            found.add(at)
        for step, sub in node.items():
            if step != ".":
                walk(sub, (*at, step))

    walk(tree, ())
    return frozenset(found)


def dotted(path: Path) -> str:
    """A path as conflict messages write it: .status.conditions[type="Ready"].reason."""
    text = ""
    for step in path:
        sort, _, rest = step.partition(":")
        if sort == "f":
            text += f".{rest}"
        elif sort == "k":
            text += "[" + ",".join(f"{k}={_json(v)}" for k, v in json.loads(rest).items()) + "]"
        else:
            text += f"[={rest}]"
    return text or "."
