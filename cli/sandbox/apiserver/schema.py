"""What a custom resource's schema does to an object: prune unknown fields, fill defaults, find faults.

A structural OpenAPI v3 schema as CustomResourceDefinitions carry it. CEL rules (x-kubernetes-validations) are not
evaluated here: that takes a real API server.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from cli.sandbox.apiserver.statuses import (
    Cause,
    duplicate,
    invalid_value,
    required,
    too_long,
    too_many,
    unsupported_value,
    wrong_type,
)

Schema = Mapping[str, Any]
_ALWAYS = ("apiVersion", "kind", "metadata")


def pruned(obj: Mapping[str, Any], schema: Schema) -> tuple[dict[str, Any], list[str]]:
    """The object with declared fields only, and the paths of those that went."""
    unknown: list[str] = []
    body = {k: v for k, v in obj.items() if k not in _ALWAYS}
    kept = _prune(body, schema, "", unknown)
    return {k: obj[k] for k in _ALWAYS if k in obj} | kept, unknown


def _prune(value: Any, schema: Schema, at: str, unknown: list[str]) -> Any:
    if isinstance(value, list):
        items = schema.get("items") or {"x-kubernetes-preserve-unknown-fields": True}
        return [_prune(item, items, f"{at}[{i}]", unknown) for i, item in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    properties = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    keeps = schema.get("x-kubernetes-preserve-unknown-fields") or extra is True
    always = _ALWAYS if schema.get("x-kubernetes-embedded-resource") else ()
    kept = {}
    for name, sub in value.items():
        here = f"{at}.{name}" if at else name
        if name in properties:
            kept[name] = _prune(sub, properties[name], here, unknown)
        elif isinstance(extra, Mapping):
            kept[name] = _prune(sub, extra, here, unknown)
        elif keeps or name in always:
            kept[name] = sub
        else:
            unknown.append(here)
    return kept


def with_defaults(value: Any, schema: Schema) -> Any:
    """The value with absent fields that have a default filled in; null is absent where it is not allowed."""
    if isinstance(value, list):
        return [with_defaults(item, schema.get("items") or {}) for item in value]
    if not isinstance(value, Mapping):
        return value
    filled = dict(value)
    for name, sub in (schema.get("properties") or {}).items():
        if name in filled and filled[name] is None and not sub.get("nullable"):
            del filled[name]
        if name not in filled and "default" in sub:
            filled[name] = copy.deepcopy(sub["default"])
        if name in filled:
            filled[name] = with_defaults(filled[name], sub)
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping):
        declared = schema.get("properties") or {}
        filled.update({n: with_defaults(v, extra) for n, v in filled.items() if n not in declared})
    return filled


def faults(value: Any, schema: Schema, at: str = "") -> list[Cause]:
    """Everything the schema has against a value."""
    if value is None and schema.get("nullable"):
        return []
    if (complaint := _type_complaint(value, schema, at)) is not None:
        return [complaint]
    found = _enumeration(value, schema, at)
    if isinstance(value, str):
        found += _string_faults(value, schema, at)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found += _number_faults(value, schema, at)
    elif isinstance(value, list):
        found += _list_faults(value, schema, at)
    elif isinstance(value, Mapping):
        found += _map_faults(value, schema, at)
    return found


_IS: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda v: isinstance(v, str),
    "integer": lambda v: (isinstance(v, int) and not isinstance(v, bool)) or (isinstance(v, float) and v.is_integer()),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    "boolean": lambda v: isinstance(v, bool),
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, Mapping),
}


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    return next(name for name in ("string", "boolean", "integer", "number", "array", "object") if _IS[name](value))


def _type_complaint(value: Any, schema: Schema, at: str) -> Cause | None:
    wanted = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        return (
            None
            if _IS["string"](value) or _IS["integer"](value)
            else wrong_type(
                at, _json_type(value), f'{at} in body must be of type integer,string: "{_json_type(value)}"'
            )
        )
    if wanted is None or (value is not None and _IS[wanted](value)):
        return None
    return wrong_type(at, _json_type(value), f'{at} in body must be of type {wanted}: "{_json_type(value)}"')


def _enumeration(value: Any, schema: Schema, at: str) -> list[Cause]:
    allowed = schema.get("enum")
    return [] if allowed is None or value in allowed else [unsupported_value(at, value, map(str, allowed))]


def _string_faults(value: str, schema: Schema, at: str) -> list[Cause]:
    found = []
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        found.append(too_long(at, schema["maxLength"]))
    if len(value) < schema.get("minLength", 0):
        found.append(invalid_value(at, value, f"{at} in body should be at least {schema['minLength']} chars long"))
    elif not found and "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(invalid_value(at, value, f"{at} in body should match '{schema['pattern']}'"))
    if schema.get("format") == "date-time" and not re.fullmatch(
        r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", value
    ):
        found.append(wrong_type(at, value, f'{at} in body must be of type date-time: "{value}"'))
    return found


def _number_faults(value: float, schema: Schema, at: str) -> list[Cause]:
    found = []
    if "minimum" in schema and value < schema["minimum"]:
        found.append(invalid_value(at, value, f"{at} in body should be greater than or equal to {schema['minimum']}"))
    if "maximum" in schema and value > schema["maximum"]:
        found.append(invalid_value(at, value, f"{at} in body should be less than or equal to {schema['maximum']}"))
    if schema.get("format") == "int32" and not -(2**31) <= value < 2**31:
        found.append(invalid_value(at, value, f"{at} in body must be of type int32"))
    return found


def _list_faults(value: list[Any], schema: Schema, at: str) -> list[Cause]:
    found = []
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        found.append(too_many(at, len(value), schema["maxItems"]))
    if len(value) < schema.get("minItems", 0):
        found.append(invalid_value(at, len(value), f"{at} in body should have at least {schema['minItems']} items"))
    seen: set[str] = set()
    for i, item in enumerate(value):
        if schema.get("items"):
            found += faults(item, schema["items"], f"{at}[{i}]")
        identity = _identity(item, schema)
        if identity is not None and identity[0] in seen:
            found.append(duplicate(f"{at}[{i}]", identity[1]))
        elif identity is not None:
            seen.add(identity[0])
    return found


def _identity(item: Any, schema: Schema) -> tuple[str, Any] | None:
    kind = schema.get("x-kubernetes-list-type")
    if kind == "set":
        return json.dumps(item, sort_keys=True), item
    if kind == "map" and isinstance(item, Mapping):
        keys = {k: item.get(k) for k in schema.get("x-kubernetes-list-map-keys") or ()}
        return json.dumps(keys, sort_keys=True), keys
    return None


def _map_faults(value: Mapping[str, Any], schema: Schema, at: str) -> list[Cause]:
    properties = schema.get("properties") or {}
    missing = [name for name in schema.get("required") or () if name not in value]
    found = [required(f"{at}.{name}" if at else name) for name in missing]
    if "maxProperties" in schema and len(value) > schema["maxProperties"]:
        found.append(too_many(at, len(value), schema["maxProperties"]))
    extra = schema.get("additionalProperties")
    for name, sub in value.items():
        if not at and name in _ALWAYS:
            continue
        here = f"{at}.{name}" if at else name
        if name in properties:
            found += faults(sub, properties[name], here)
        elif isinstance(extra, Mapping):
            found += faults(sub, extra, here)
    return found
