"""What a JSON patch, a merge patch or a strategic merge patch makes of an object."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from cli.sandbox.apiserver.fieldsets import step_of
from cli.sandbox.apiserver.shapes import Shape
from cli.sandbox.apiserver.statuses import ApiError, bad_request

DIRECTIVES = ("$patch", "$retainKeys")


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def strategic_patch(target: Any, patch: Any, shape: Shape) -> Any:
    """Kubernetes' merge patch that knows the keys of lists, with `$patch: delete` and `$patch: replace`.

    `$setElementOrder` and `$deleteFromPrimitiveList`, which only kubectl writes, are obeyed as far as they delete.
    """
    if isinstance(patch, list):
        if shape.lists == "atomic" or not isinstance(target, list):
            return [item for item in patch if not (isinstance(item, Mapping) and "$patch" in item)]
        return _patched_items(target, patch, shape)
    if not isinstance(patch, Mapping):
        return patch
    if patch.get("$patch") == "replace":
        return {k: v for k, v in patch.items() if k not in DIRECTIVES}
    merged = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if name in DIRECTIVES or name.startswith("$setElementOrder/"):
            continue
        if name.startswith("$deleteFromPrimitiveList/"):
            of = name.partition("/")[2]
            merged[of] = [item for item in merged.get(of, []) if item not in value]
        elif value is None:
            merged.pop(name, None)
        else:
            merged[name] = strategic_patch(merged.get(name), value, shape.child(name))
    return merged


def _patched_items(target: list[Any], patch: list[Any], shape: Shape) -> list[Any]:
    if shape.lists == "set":
        return target + [item for item in patch if item not in target]
    if any(isinstance(item, Mapping) and item.get("$patch") == "replace" and len(item) == 1 for item in patch):
        return [item for item in patch if item != {"$patch": "replace"}]
    merged = {step_of(item, shape): item for item in target}
    for item in patch:
        step = step_of(item, shape)
        if step is None:
            raise bad_request(f"map: {item} does not contain declared merge key: {', '.join(shape.keys)}")
        if item.get("$patch") == "delete":
            merged.pop(step, None)
        else:
            merged[step] = strategic_patch(merged.get(step), item, shape.item())
    return list(merged.values())


def json_patch(target: Any, patch: Any) -> Any:
    """RFC 6902; ApiError 422 when an operation does not fit the object, 400 when it is no patch at all."""
    if not isinstance(patch, list):
        raise bad_request("error decoding patch: a JSON patch is a list of operations")
    doc = copy.deepcopy(target)
    for operation in patch:
        try:
            doc = _one(doc, operation)
        except (KeyError, IndexError, TypeError, ValueError) as wrong:
            raise ApiError(
                422, "Invalid", "the server rejected our request due to an error in our request", {}
            ) from wrong
    return doc


def _one(doc: Any, operation: Mapping[str, Any]) -> Any:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "add":
            return _put(doc, path, operation["value"], insert=True)
        case "replace":
            _at(doc, path)
            return _put(doc, path, operation["value"], insert=False)
        case "remove":
            return _take(doc, path)
        case "move":
            origin = _pointer(operation["from"])
            value = _at(doc, origin)
            return _put(_take(doc, origin), path, value, insert=True)
        case "copy":
            return _put(doc, path, copy.deepcopy(_at(doc, _pointer(operation["from"]))), insert=True)
        case "test":
            if (found := _at(doc, path)) != operation["value"]:
                raise ValueError(f"testing path {operation['path']} failed, found {found!r}")
            return doc
        case other:
            raise ValueError(f"unexpected kind of operation: {other}")


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise ValueError(f"{text!r} is no JSON pointer")
    return [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]


def _at(doc: Any, path: list[str]) -> Any:
    for step in path:
        doc = doc[int(step)] if isinstance(doc, list) else doc[step]
    return doc


def _put(doc: Any, path: list[str], value: Any, *, insert: bool) -> Any:
    if not path:
        return value
    parent, last = _at(doc, path[:-1]), path[-1]
    if not isinstance(parent, list):
        parent[last] = value
    elif last == "-":
        parent.append(value)
    elif insert:
        if int(last) > len(parent):
            raise IndexError(f"index {last} is past the end of the list")
        parent.insert(int(last), value)
    else:
        parent[int(last)] = value
    return doc


def _take(doc: Any, path: list[str]) -> Any:
    parent, last = _at(doc, path[:-1]), path[-1]
    if isinstance(parent, list):
        del parent[int(last)]
    else:
        del parent[last]
    return doc
