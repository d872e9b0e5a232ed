"""Nodes, slices, classes and claims to ask the allocator about."""

from collections.abc import Mapping, Sequence
from typing import Any

from controller.allocator import Question

DRIVER = "gpu.example.com"
Json = dict[str, Any]


def a_node(name: str = "node-a", **labels: str) -> Json:
    """A Node."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def a_device(name: str, *, taints: Sequence[Json] = (), memory: str = "80Gi", **attributes: Any) -> Json:
    """A device; attributes by name, a tuple of one for a version."""
    device: Json = {
        "name": name,
        "attributes": {key: _attribute(value) for key, value in attributes.items()},
        "capacity": {"memory": {"value": memory}},
    }
    return device | ({"taints": list(taints)} if taints else {})


def _attribute(value: Any) -> Json:
    match value:
        case bool():
            return {"bool": value}
        case int():
            return {"int": value}
        case (version,):
            return {"version": version}
        case _:
            return {"string": value}


def a_slice(*devices: Json, name: str = "slice-a", pool: str = "node-a", count: int = 1, **spec: Any) -> Json:
    """A ResourceSlice, of node-a unless `spec` says otherwise."""
    place = (
        {} if {"nodeSelector", "allNodes", "perDeviceNodeSelection", "nodeName"} & set(spec) else {"nodeName": "node-a"}
    )
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": count},
            "devices": list(devices),
            **place,
            **spec,
        },
    }


def a_class(name: str = "gpu", *expressions: str, **spec: Any) -> Json:
    """A DeviceClass with CEL selectors."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors(*expressions), **spec},
    }


def selectors(*expressions: str) -> list[Json]:
    """As in a class or a request."""
    return [{"cel": {"expression": expression}} for expression in expressions]


def a_request(name: str = "gpu", *expressions: str, count: int = 1, device_class: str = "gpu", **more: Any) -> Json:
    """A request for so many devices; count 0 for all of them."""
    mode: Json = {"allocationMode": "ExactCount", "count": count} if count else {"allocationMode": "All"}
    return {
        "name": name,
        "exactly": {"deviceClassName": device_class, "selectors": selectors(*expressions), **mode, **more},
    }


def a_claim(
    *requests: Json, name: str = "claim", constraints: Sequence[Json] = (), config: Sequence[Json] = ()
) -> Json:
    """A ResourceClaim of team-a."""
    devices: Json = {"requests": list(requests) or [a_request()]}
    devices |= {"constraints": list(constraints)} if constraints else {}
    devices |= {"config": list(config)} if config else {}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"devices": devices},
    }


def a_question(
    *claims: Json,
    slices: Sequence[Json] = (),
    classes: Sequence[Json] = (),
    held: Mapping[Any, str] | None = None,
    node: Json | None = None,
) -> Question:
    """Of one claim for one device unless told otherwise; the class `gpu` without selectors is there unless others are given."""
    known = classes or (a_class(),)
    return Question(
        node or a_node(),
        tuple(slices),
        {item["metadata"]["name"]: item for item in known},
        claims or (a_claim(),),
        held or {},
    )
