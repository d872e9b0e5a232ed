"""Which fields the kinds of resource.k8s.io have: a typed server drops what it does not know, without a word.

A table in place of the Go types; "*" stands for any key, None for a value that is taken as it is. Source: the v1 API of
Kubernetes 1.37. Kinds that are not here keep every field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Fields: TypeAlias = "Mapping[str, Fields | None]"


def _names(*names: str) -> dict[str, Fields | None]:
    return dict.fromkeys(names)


_ATTRIBUTE: Fields = _names("int", "bool", "string", "version", "ints", "bools", "strings", "versions")
_POLICY: Fields = {**_names("default", "validValues"), "validRange": _names("min", "max", "step")}
_COUNTERS: Fields = {"*": _names("value")}
_DEVICE: Fields = {
    **_names("name", "nodeName", "nodeSelector", "allNodes", "bindsToNode", "bindingConditions"),
    **_names("bindingFailureConditions", "allowMultipleAllocations", "nodeAllocatableResources"),
    "attributes": {"*": _ATTRIBUTE},
    "capacity": {"*": {"value": None, "requestPolicy": _POLICY}},
    "consumesCounters": {**_names("counterSet", "compatibilityGroups"), "counters": _COUNTERS},
    "taints": _names("key", "value", "effect", "timeAdded"),
}
_SLICE: Fields = {
    **_names("driver", "nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection", "partitionTypeAttribute"),
    **_names("skipNodeOperations"),
    "pool": _names("name", "generation", "resourceSliceCount"),
    "devices": _DEVICE,
    "sharedCounters": {"name": None, "counters": _COUNTERS},
}
_SELECTORS: Fields = {"cel": _names("expression")}
_TOLERATION: Fields = _names("key", "operator", "value", "effect", "tolerationSeconds")
_WISH: Fields = {
    **_names("deviceClassName", "allocationMode", "count"),
    "selectors": _SELECTORS,
    "tolerations": _TOLERATION,
    "capacity": {"requests": None},
    "derivedAttributes": _names("name", "expression"),
}
_OPAQUE: Fields = _names("driver", "parameters")
_CLAIM: Fields = {
    "devices": {
        "requests": {
            "name": None,
            "exactly": {**_WISH, "adminAccess": None},
            "firstAvailable": {**_WISH, "name": None},
        },
        "constraints": _names("requests", "matchAttribute", "distinctAttribute"),
        "config": {"requests": None, "opaque": _OPAQUE},
    }
}
_RESULT: Fields = {
    **_names("request", "driver", "pool", "device", "adminAccess", "bindingConditions", "bindingFailureConditions"),
    **_names("shareID", "consumedCapacity", "skipNodeOperations"),
    "tolerations": _TOLERATION,
}
_CLAIM_STATUS: Fields = {
    "allocation": {
        **_names("nodeSelector", "allocationTimestamp"),
        "devices": {"results": _RESULT, "config": {**_names("source", "requests"), "opaque": _OPAQUE}},
    },
    "reservedFor": _names("apiGroup", "resource", "name", "uid"),
    "devices": {
        **_names("driver", "pool", "device", "shareID", "data"),
        "conditions": _names("type", "status", "observedGeneration", "lastTransitionTime", "reason", "message"),
        "networkData": _names("interfaceName", "ips", "hardwareAddress"),
    },
}

KNOWN: Mapping[str, Fields] = {
    "resourceslices.resource.k8s.io": {"spec": _SLICE},
    "resourceclaims.resource.k8s.io": {"spec": _CLAIM, "status": _CLAIM_STATUS},
    "resourceclaimtemplates.resource.k8s.io": {"spec": {"metadata": None, "spec": _CLAIM}},
    "deviceclasses.resource.k8s.io": {
        "spec": {"selectors": _SELECTORS, "config": {"opaque": _OPAQUE}, "extendedResourceName": None}
    },
}


def pruned(resource: str, obj: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The object with known fields only, and the paths of those that went."""
    fields = KNOWN.get(resource)
    if fields is None:
        return dict(obj), []
    unknown: list[str] = []
    always = _names("apiVersion", "kind", "metadata")
    return _prune(obj, {**always, **fields}, "", unknown), unknown


def _prune(value: Any, fields: Fields | None, at: str, unknown: list[str]) -> Any:
    if fields is None:
        return value
    if isinstance(value, list):
        return [_prune(item, fields, f"{at}[{i}]", unknown) for i, item in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    kept = {}
    for name, sub in value.items():
        here = f"{at}.{name}" if at else name
        if name in fields or "*" in fields:
            kept[name] = _prune(sub, fields.get(name, fields.get("*")), here, unknown)
        else:
            unknown.append(here)
    return kept
