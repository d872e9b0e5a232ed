"""Which fields the kinds of resource.k8s.io have: a typed server drops what it does not know, without a word.

What is there of another type than the field's makes the whole object unreadable. A table in place of the Go types. Source: the
v1 API of Kubernetes 1.37. Kinds that are not here keep every field, whatever its type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Fields: TypeAlias = "type[str | int | bool] | Mapping[str, Fields] | list[Fields] | None"
"""An object with these fields ("*" stands for any), a list of such, a scalar, or anything."""


class WrongTypeError(ValueError):
    """A value of another type than its field, in the words of the decoder of the real server."""


def _of(kind: Fields, *names: str) -> dict[str, Fields]:
    return dict.fromkeys(names, kind)


_METADATA: Fields = {
    **_of(str, "name", "generateName", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"),
    **_of(None, "ownerReferences", "managedFields"),
    **_of({"*": str}, "labels", "annotations"),
    "finalizers": [str],
    "generation": int,
}
_ATTRIBUTE: Fields = {
    **_of(int, "int"),
    **_of(bool, "bool"),
    **_of(str, "string", "version"),
    **_of([int], "ints"),
    **_of([bool], "bools"),
    **_of([str], "strings", "versions"),
}
_AMOUNT: Fields = None  # a text or a number
_POLICY: Fields = {"default": _AMOUNT, "validValues": [_AMOUNT], "validRange": _of(_AMOUNT, "min", "max", "step")}
_COUNTERS: Fields = {"*": {"value": _AMOUNT}}
_TERM: Fields = _of([{**_of(str, "key", "operator"), "values": [str]}], "matchExpressions", "matchFields")
_NODES: Fields = {"nodeSelectorTerms": [_TERM]}
_DEVICE: Fields = {
    **_of(str, "name", "nodeName"),
    **_of(bool, "allNodes", "bindsToNode", "allowMultipleAllocations"),
    **_of([str], "bindingConditions", "bindingFailureConditions"),
    "nodeSelector": _NODES,
    "nodeAllocatableResources": None,
    "attributes": {"*": _ATTRIBUTE},
    "capacity": {"*": {"value": _AMOUNT, "requestPolicy": _POLICY}},
    "consumesCounters": [{"counterSet": str, "compatibilityGroups": None, "counters": _COUNTERS}],
    "taints": [_of(str, "key", "value", "effect", "timeAdded")],
}
_SLICE: Fields = {
    **_of(str, "driver", "nodeName", "partitionTypeAttribute"),
    **_of(bool, "allNodes", "perDeviceNodeSelection", "skipNodeOperations"),
    "nodeSelector": _NODES,
    "pool": {"name": str, **_of(int, "generation", "resourceSliceCount")},
    "devices": [_DEVICE],
    "sharedCounters": [{"name": str, "counters": _COUNTERS}],
}
_SELECTORS: Fields = [{"cel": _of(str, "expression")}]
_TOLERATION: Fields = {**_of(str, "key", "operator", "value", "effect"), "tolerationSeconds": int}
_WISH: Mapping[str, Fields] = {
    **_of(str, "deviceClassName", "allocationMode"),
    "count": int,
    "selectors": _SELECTORS,
    "tolerations": [_TOLERATION],
    "capacity": {"requests": {"*": _AMOUNT}},
    "derivedAttributes": [_of(str, "name", "expression")],
}
_OPAQUE: Fields = {"driver": str, "parameters": None}
_CLAIM: Fields = {
    "devices": {
        "requests": [
            {
                "name": str,
                "exactly": {**_WISH, "adminAccess": bool},
                "firstAvailable": [{**_WISH, "name": str}],
            }
        ],
        "constraints": [{"requests": [str], **_of(str, "matchAttribute", "distinctAttribute")}],
        "config": [{"requests": [str], "opaque": _OPAQUE}],
    }
}
_RESULT: Fields = {
    **_of(str, "request", "driver", "pool", "device", "shareID"),
    **_of(bool, "adminAccess", "skipNodeOperations"),
    **_of([str], "bindingConditions", "bindingFailureConditions"),
    "consumedCapacity": {"*": _AMOUNT},
    "tolerations": [_TOLERATION],
}
_CONDITION: Fields = {
    **_of(str, "type", "status", "lastTransitionTime", "reason", "message"),
    "observedGeneration": int,
}
_CLAIM_STATUS: Fields = {
    "allocation": {
        "nodeSelector": _NODES,
        "allocationTimestamp": str,
        "devices": {"results": [_RESULT], "config": [{"source": str, "requests": [str], "opaque": _OPAQUE}]},
    },
    "reservedFor": [_of(str, "apiGroup", "resource", "name", "uid")],
    "devices": [
        {
            **_of(str, "driver", "pool", "device", "shareID"),
            "data": None,
            "conditions": [_CONDITION],
            "networkData": {**_of(str, "interfaceName", "hardwareAddress"), "ips": [str]},
        }
    ],
}

KNOWN: Mapping[str, Fields] = {
    "resourceslices.resource.k8s.io": {"spec": _SLICE},
    "resourceclaims.resource.k8s.io": {"spec": _CLAIM, "status": _CLAIM_STATUS},
    "resourceclaimtemplates.resource.k8s.io": {"spec": {"metadata": _METADATA, "spec": _CLAIM}},
    "deviceclasses.resource.k8s.io": {
        "spec": {"selectors": _SELECTORS, "config": [{"opaque": _OPAQUE}], "extendedResourceName": str}
    },
}


def pruned(resource: str, obj: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The object with known fields only, and the paths of those that went. WrongTypeError: it could not even be read."""
    fields = KNOWN.get(resource)
    if not isinstance(fields, Mapping):
        return dict(obj), []
    unknown: list[str] = []
    return _prune(obj, {**_of(None, "apiVersion", "kind", "metadata"), **fields}, "", unknown), unknown


def _prune(value: Any, fields: Fields, at: str, unknown: list[str]) -> Any:
    if fields is None or value is None:  # null is read as a field left out
        return value
    if isinstance(fields, list):
        _check(value, list, at)
        return [_prune(item, fields[0], f"{at}[{i}]", unknown) for i, item in enumerate(value)]
    if not isinstance(fields, Mapping):
        _check(value, fields, at)
        return value
    _check(value, dict, at)
    kept = {}
    for name, sub in value.items():
        here = f"{at}.{name}" if at else name
        if name in fields or "*" in fields:
            kept[name] = _prune(sub, fields.get(name, fields.get("*")), here, unknown)
        else:
            unknown.append(here)
    return kept


_JSON = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}


def _check(value: Any, wanted: type, at: str) -> None:
    if type(value) is not wanted:
        raise WrongTypeError(f"json: cannot unmarshal {_JSON[type(value)]} into Go struct field {at}")
