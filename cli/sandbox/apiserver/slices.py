"""ResourceSlices: what the API server fills in, and what it refuses.

Source: `pkg/apis/resource/v1/defaults.go` and `validation/validation.go` of Kubernetes 1.37.2, for the fields of beta
and stable features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cli.sandbox.apiserver import formats, nodeselectors, policies
from cli.sandbox.apiserver.formats import items, unique
from cli.sandbox.apiserver.quantity import canonical
from cli.sandbox.apiserver.statuses import (
    Cause,
    forbidden_field,
    invalid_value,
    required,
    too_long,
    too_many,
    unsupported_value,
)

DEVICES = 128
DEVICES_WITH_MORE = 64
"""The limit as soon as one device has taints, consumes counters, or has an attribute that is a list."""
ATTRIBUTES_AND_CAPACITIES = 32
ATTRIBUTE_VALUES = 48
STRING_BYTES = 64
COUNTER_SETS = 8
COUNTERS = 32
COUNTER_CONSUMPTIONS = 2
TAINTS = 16
BINDING_CONDITIONS = 4

_SCALARS = ("int", "bool", "string", "version")
_LISTS = ("ints", "bools", "strings", "versions")
_SELECTIONS = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_ONE_SELECTION = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
_ONE_PER_DEVICE = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true "
    "in the ResourceSlice spec"
)


def fill_in(obj: Mapping[str, Any], now: str) -> None:
    """Taints get a time when they have none, on every write; quantities take their canonical form."""
    spec = obj.get("spec") or {}
    for device in spec.get("devices") or ():
        for taint in device.get("taints") or ():
            taint.setdefault("timeAdded", now)
        for capacity in (device.get("capacity") or {}).values():
            _canonical_capacity(capacity)
        for consumption in device.get("consumesCounters") or ():
            _canonical_counters(consumption)
    for counter_set in spec.get("sharedCounters") or ():
        _canonical_counters(counter_set)


def _canonical_counters(holder: Mapping[str, Any]) -> None:
    for counter in (holder.get("counters") or {}).values():
        counter["value"] = canonical(counter.get("value", 0))


def _canonical_capacity(capacity: dict[str, Any]) -> None:
    capacity["value"] = canonical(capacity.get("value", 0))
    policy = capacity.get("requestPolicy") or {}
    if "default" in policy:
        policy["default"] = canonical(policy["default"])
    if "validValues" in policy:
        policy["validValues"] = [canonical(v) for v in policy["validValues"]]
    for bound in ("min", "max", "step"):
        if bound in (policy.get("validRange") or {}):
            policy["validRange"][bound] = canonical(policy["validRange"][bound])


def faults(obj: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[Cause]:
    """Everything the API has against a slice."""
    spec = obj.get("spec") or {}
    found = formats.driver(spec.get("driver"), "spec.driver") + _pool(spec.get("pool") or {})
    if old is not None:
        found += _unchanged(spec, old["spec"])
    found += _node_selection(spec)
    if spec.get("sharedCounters") is not None and spec.get("devices") is not None:
        found.append(invalid_value("spec", "", "only one of `sharedCounters` or `devices` is allowed"))
    devices = spec.get("devices") or []
    per_device = spec.get("perDeviceNodeSelection") is True
    found += unique(
        devices,
        DEVICES_WITH_MORE if any(map(_needs_more, devices)) else DEVICES,
        lambda device, at: _device(device, at, per_device=per_device),
        lambda device: str(device.get("name")),
        "spec.devices",
    )
    found += unique(
        spec.get("sharedCounters") or [],
        COUNTER_SETS,
        lambda counters, at: _counters(counters, "name", at),
        lambda counters: str(counters.get("name")),
        "spec.sharedCounters",
        shows_item=True,
    )
    return found


def _unchanged(spec: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
    pairs = (
        ("spec.pool.name", (spec.get("pool") or {}).get("name"), old["pool"].get("name")),
        ("spec.driver", spec.get("driver"), old.get("driver")),
        ("spec.nodeName", spec.get("nodeName"), old.get("nodeName")),
    )
    return [invalid_value(at, new, "field is immutable") for at, new, before in pairs if new != before]


def _pool(pool: Mapping[str, Any]) -> list[Cause]:
    found = formats.pool_name(pool.get("name"), "spec.pool.name")
    count = pool.get("resourceSliceCount", 0)
    if count <= 0:
        found.append(invalid_value("spec.pool.resourceSliceCount", count, "must be greater than zero"))
    if pool.get("generation", 0) < 0:
        rule = "must be greater than or equal to zero"
        found.append(invalid_value("spec.pool.generation", pool["generation"], rule))
    return found


def _node_selection(spec: Mapping[str, Any]) -> list[Cause]:
    found = []
    chosen = [f"`{name}`" for name in _SELECTIONS if _is_set(spec, name)]
    if spec.get("nodeName") == "":
        found.append(invalid_value("spec.nodeName", "", "must be either unset or set to a non-empty string"))
    elif spec.get("nodeName"):
        found += formats.subdomain(spec["nodeName"], "spec.nodeName")
    selector = spec.get("nodeSelector")
    terms = (selector or {}).get("nodeSelectorTerms") or []
    if selector is not None:
        found += nodeselectors.faults(selector, "spec.nodeSelector")
    if selector is not None and len(terms) != 1:
        rule = "must have exactly one node selector term"
        found.append(invalid_value("spec.nodeSelector.nodeSelectorTerms", terms, rule))
    found += [
        invalid_value(f"spec.{name}", value=False, detail="must be either unset or set to true")
        for name in ("allNodes", "perDeviceNodeSelection")
        if spec.get(name) is False
    ]
    if not chosen:
        found.append(required("spec", _ONE_SELECTION))
    elif len(chosen) > 1:
        set_fields = "{" + ", ".join(chosen) + "}"
        found.append(invalid_value("spec", set_fields, f"{_ONE_SELECTION}, but multiple fields are set"))
    return found


def _needs_more(device: Mapping[str, Any]) -> bool:
    lists = any(name in attribute for attribute in (device.get("attributes") or {}).values() for name in _LISTS)
    return bool(device.get("taints") or device.get("consumesCounters") or lists)


def _device(device: Mapping[str, Any], at: str, *, per_device: bool) -> list[Cause]:
    found = formats.label(device.get("name"), f"{at}.name")
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if (total := len(attributes) + len(capacity)) > ATTRIBUTES_AND_CAPACITIES:
        rule = f"the total number of attributes and capacities must not exceed {ATTRIBUTES_AND_CAPACITIES}"
        found.append(invalid_value(at, total, rule))
    values = sum(len(v) if isinstance(v, list) else 1 for a in attributes.values() for v in a.values())
    if values > ATTRIBUTE_VALUES:
        rule = f"the total number of attribute values must not exceed {ATTRIBUTE_VALUES}"
        found.append(invalid_value(at, values, rule))
    for name, attribute in attributes.items():
        found += formats.qualified_name(name, f"{at}.attributes")
        found += _attribute(attribute, f"{at}.attributes[{name}]")
    multiple = device.get("allowMultipleAllocations") is True
    for name, amount in capacity.items():
        found += formats.qualified_name(name, f"{at}.capacity")
        here = f"{at}.capacity[{name}].requestPolicy"
        if amount.get("requestPolicy") is not None and not multiple:
            found.append(forbidden_field(here, "allowMultipleAllocations must be true"))
        elif amount.get("requestPolicy") is not None:
            found += policies.faults(amount, here)
    found += items(device.get("taints") or [], TAINTS, _taint, f"{at}.taints")
    found += unique(
        device.get("consumesCounters") or [],
        COUNTER_CONSUMPTIONS,
        lambda consumption, here: _counters(consumption, "counterSet", here),
        lambda consumption: str(consumption.get("counterSet")),
        f"{at}.consumesCounters",
        shows_item=True,
    )
    return found + _device_node(device, at, per_device=per_device) + _binding(device, at)


def _attribute(attribute: Mapping[str, Any], at: str) -> list[Cause]:
    found: list[Cause] = []
    given = [name for name in (*_SCALARS, *_LISTS) if attribute.get(name) is not None]
    one_of = ", ".join(f"`{name}`" for name in (*_SCALARS, *_LISTS))
    if not given:
        found.append(invalid_value(at, "", f"must specify one of: {one_of}"))
    elif len(given) > 1:
        both = "{" + ", ".join(given) + "}"
        found.append(invalid_value(at, both, f"must specify exactly one of: {one_of}"))
    for name in given:
        value = attribute[name]
        if isinstance(value, list) and not value:
            found.append(invalid_value(f"{at}.{name}", value, "must not be empty if specified"))
        for text in value if isinstance(value, list) else [value]:
            if name.startswith("version") and not formats.SEMVER.fullmatch(str(text)):
                found.append(
                    invalid_value(f"{at}.{name}", text, "must be a string compatible with semver.org spec 2.0.0")
                )
            if isinstance(text, str) and formats.utf8_bytes(text) > STRING_BYTES:
                found.append(too_long(f"{at}.{name}", STRING_BYTES))
    return found


def _taint(taint: Mapping[str, Any], at: str) -> list[Cause]:
    found = formats.label_name(taint.get("key"), f"{at}.key")
    if taint.get("value"):
        found += formats.label_value(taint["value"], f"{at}.value")
    if not taint.get("effect"):
        found.append(required(f"{at}.effect"))
    elif taint["effect"] not in formats.TAINT_EFFECTS:
        found.append(unsupported_value(f"{at}.effect", taint["effect"], formats.TAINT_EFFECTS))
    return found


def _counters(holder: Mapping[str, Any], name_field: str, at: str) -> list[Cause]:
    name = holder.get(name_field)
    found = formats.label(name, f"{at}.{name_field}") if name else [required(f"{at}.{name_field}")]
    counters = holder.get("counters") or {}
    if not counters:
        return [*found, required(f"{at}.counters")]
    if len(counters) > COUNTERS:
        return [*found, too_many(f"{at}.counters", len(counters), COUNTERS)]
    for key in counters:
        found += formats.label(key, f"{at}.counters")
    return found


def _device_node(device: Mapping[str, Any], at: str, *, per_device: bool) -> list[Cause]:
    selector = device.get("nodeSelector")
    chosen = [f"`{name}`" for name in ("nodeName", "nodeSelector", "allNodes") if _is_set(device, name)]
    if not per_device:
        rule = (
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in "
            "the ResourceSlice spec"
        )
        given = any(device.get(name) is not None for name in ("nodeName", "nodeSelector", "allNodes"))
        return [invalid_value(at, None, rule)] if given else []
    found = [] if selector is None else nodeselectors.faults(selector, f"{at}.nodeSelector")
    if device.get("nodeName") == "":
        found.append(invalid_value(f"{at}.nodeName", "", "must not be empty"))
    elif device.get("nodeName"):
        found += formats.subdomain(device["nodeName"], f"{at}.nodeName")
    if device.get("allNodes") is False:
        found.append(invalid_value(f"{at}.allNodes", value=False, detail="must be either unset or set to true"))
    if not chosen:
        found.append(required(at, _ONE_PER_DEVICE))
    elif len(chosen) > 1:
        found.append(invalid_value(at, "{" + ", ".join(chosen) + "}", _ONE_PER_DEVICE))
    return found


def _is_set(holder: Mapping[str, Any], name: str) -> bool:
    """A selector counts though it is empty, a name or a flag does not."""
    return holder.get(name) is not None if name == "nodeSelector" else bool(holder.get(name))


def _binding(device: Mapping[str, Any], at: str) -> list[Cause]:
    good, bad = device.get("bindingConditions") or [], device.get("bindingFailureConditions") or []
    found = []
    for name, conditions in (("bindingConditions", good), ("bindingFailureConditions", bad)):
        found += unique(conditions, BINDING_CONDITIONS, formats.label_name, str, f"{at}.{name}")
    for i, condition in enumerate(bad):
        if condition in good:
            rule = "bindingFailureConditions must not overlap with bindingConditions"
            found.append(invalid_value(f"{at}.bindingFailureConditions[{i}]", condition, rule))
    if bool(good) != bool(bad):
        lacking = "bindingFailureConditions" if good else "bindingConditions"
        there = "bindingConditions" if good else "bindingFailureConditions"
        found.append(invalid_value(f"{at}.{lacking}", None, f"{lacking} are required to use {there}"))
    return found
