"""The status of a ResourceClaim: what the API server refuses when a scheduler or a driver writes it.

Source: `validateResourceClaimStatusUpdate` in `pkg/apis/resource/validation/validation.go` of Kubernetes 1.37.2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from cli.sandbox.apiserver import claims, formats, nodeselectors
from cli.sandbox.apiserver.claims import Names
from cli.sandbox.apiserver.formats import items, unique
from cli.sandbox.apiserver.statuses import (
    Cause,
    duplicate,
    forbidden_field,
    invalid_value,
    required,
    too_long,
    too_many,
    unsupported_value,
)

RESULTS = 32
CONFIGS = 64
RESERVATIONS = 256
CONDITIONS = 8
DATA_BYTES = 10 * 1024
REASON_BYTES = 1024
MESSAGE_BYTES = 32 * 1024
_NO_LIMIT = 2**31
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_RULE_REASON = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or "
    "'_,:', and must end with an alphanumeric character or '_'"
)


def faults(obj: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
    """Everything the API has against a new status of a claim."""
    status, before = obj.get("status") or {}, old.get("status") or {}
    allocation = status.get("allocation")
    found = unique(
        status.get("reservedFor") or [], RESERVATIONS, _consumer, lambda c: str(c.get("uid")), "status.reservedFor"
    )
    if status.get("reservedFor") and allocation is None:
        found.append(forbidden_field("status.reservedFor", "may not be specified when `allocated` is not set"))
    if before.get("allocation") is not None and allocation is not None:
        if allocation != before["allocation"]:
            found.append(invalid_value("status.allocation", None, "field cannot be modified once set"))
    elif allocation is not None:
        found += _allocation(allocation, "status.allocation", claims.request_names(obj.get("spec") or {}))
    allocated = _allocated(obj)
    return found + unique(
        status.get("devices") or [],
        _NO_LIMIT,
        lambda device, at: _device(device, at, allocated),
        _identity,
        "status.devices",
    )


def without_stale_devices(obj: Mapping[str, Any], old: Mapping[str, Any]) -> None:
    """Forget the status of devices that were allocated and are no more, as the server does when a claim is deallocated."""
    stale = _allocated(old) - _allocated(obj)
    status = obj.get("status") or {}
    if stale and status.get("devices"):
        status["devices"] = [device for device in status["devices"] if _identity(device) not in stale]
        if not status["devices"]:
            del status["devices"]


def _allocated(claim: Mapping[str, Any]) -> set[tuple[str, ...]]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return {_identity(result) for result in (allocation.get("devices") or {}).get("results") or ()}


def _identity(device: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(device.get(name, "")) for name in ("driver", "pool", "device", "shareID"))


def _consumer(consumer: Mapping[str, Any], at: str) -> list[Cause]:
    return [required(f"{at}.{name}") for name in ("resource", "name", "uid") if not consumer.get(name)]


def _allocation(allocation: Mapping[str, Any], at: str, names: Names) -> list[Cause]:
    devices = allocation.get("devices") or {}
    here = f"{at}.devices"
    found = items(
        devices.get("results") or [], RESULTS, lambda result, place: _result(result, place, names), f"{here}.results"
    )
    found += items(
        devices.get("config") or [], CONFIGS, lambda config, place: _config(config, place, names), f"{here}.config"
    )
    if allocation.get("nodeSelector") is not None:
        found += nodeselectors.faults(allocation["nodeSelector"], f"{at}.nodeSelector")
    return found


def _result(result: Mapping[str, Any], at: str, names: Names) -> list[Cause]:
    found = claims.reference(str(result.get("request", "")), f"{at}.request", names) + _place(result, at)
    for i, toleration in enumerate(result.get("tolerations") or ()):
        found += formats.toleration(toleration, f"{at}.tolerations[{i}]")
    return found


def _config(config: Mapping[str, Any], at: str, names: Names) -> list[Cause]:
    found, source = [], config.get("source")
    if not source:
        found.append(required(f"{at}.source"))
    elif source not in ("FromClass", "FromClaim"):
        found.append(unsupported_value(f"{at}.source", source, ("FromClaim", "FromClass")))
    return found + claims.covered(config, at, names) + claims.opaque_faults(config, at)


def _place(device: Mapping[str, Any], at: str) -> list[Cause]:
    found = formats.driver(device.get("driver"), f"{at}.driver") + formats.pool_name(device.get("pool"), f"{at}.pool")
    found += formats.label(device.get("device"), f"{at}.device")
    share = device.get("shareID")
    if share is not None and not _UUID.fullmatch(share):
        found.append(invalid_value(f"{at}.shareID", share, "must be a lowercase UUID in 8-4-4-4-12 format"))
    return found


def _device(device: Mapping[str, Any], at: str, allocated: set[tuple[str, ...]]) -> list[Cause]:
    found = _place(device, at)
    if _identity(device) not in allocated:
        shown = dict(zip(("Driver", "Pool", "Device", "ShareID"), _identity(device), strict=True))
        found.append(invalid_value(at, shown, "must be an allocated device in the claim"))
    data = device.get("data")
    if data is not None and formats.utf8_bytes(json.dumps(data, separators=(",", ":"))) > DATA_BYTES:
        found.append(too_long(f"{at}.data", DATA_BYTES))
    elif data is not None and not isinstance(data, Mapping):
        found.append(invalid_value(f"{at}.data", data, "must be a valid JSON object"))
    conditions, here = device.get("conditions") or [], f"{at}.conditions"
    if len(conditions) > CONDITIONS:
        found.append(too_many(here, len(conditions), CONDITIONS))
    for i, condition in enumerate(conditions):
        found += _condition(condition, f"{here}[{i}]")
        kinds = [earlier.get("type") for earlier in conditions[:i]]
        if condition.get("type") in kinds:
            found.append(duplicate(f"{here}[{i}]", condition.get("type")))
    return found


def _condition(condition: Mapping[str, Any], at: str) -> list[Cause]:
    found = [
        required(f"{at}.{name}")
        for name in ("type", "status", "lastTransitionTime", "reason")
        if not condition.get(name)
    ]
    if condition.get("type"):
        found += formats.label_name(condition["type"], f"{at}.type")
    if condition.get("status") not in (None, "", "True", "False", "Unknown"):
        found.append(unsupported_value(f"{at}.status", condition["status"], ("False", "True", "Unknown")))
    if condition.get("observedGeneration", 0) < 0:
        rule = "must be greater than or equal to zero"
        found.append(invalid_value(f"{at}.observedGeneration", condition["observedGeneration"], rule))
    if condition.get("reason") and not _REASON.fullmatch(condition["reason"]):
        found.append(invalid_value(f"{at}.reason", condition["reason"], _RULE_REASON))
    for name, limit in (("reason", REASON_BYTES), ("message", MESSAGE_BYTES)):
        if formats.utf8_bytes(condition.get(name) or "") > limit:
            found.append(too_long(f"{at}.{name}", limit))
    return found
