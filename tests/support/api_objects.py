"""Objects for the API server, right in all fields unless a test changes one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
NODES = "/api/v1/nodes"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def a_config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        **({"data": data} if data is not None else {}),
    }


def a_device(name: str = "gpu-0", **fields: Any) -> dict[str, Any]:
    return {"name": name, **fields}


ONE_DEVICE = (a_device(),)


def a_slice(name: str, devices: Sequence[dict[str, Any]] | None = ONE_DEVICE, **spec: Any) -> dict[str, Any]:
    """A slice of driver `NAME.example.com` on node `NAME`; None as a value leaves a field out."""
    whole = {
        "driver": f"{name}.example.com",
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        "nodeName": name,
        "devices": devices,
        **spec,
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {k: v for k, v in whole.items() if v is not None},
    }


def a_claim(name: str, **devices: Any) -> dict[str, Any]:
    whole = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}], **devices}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": whole},
    }


def an_allocation(**result: Any) -> dict[str, Any]:
    whole = {"request": "gpu", "driver": "gpu.example.com", "pool": "node-a", "device": "gpu-0", **result}
    return {"devices": {"results": [whole]}}


def a_crd(group: str, schema: dict[str, Any], **version: Any) -> dict[str, Any]:
    """A cluster-scoped kind Widget in its own group, with a status subresource."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                    **version,
                }
            ],
        },
    }


def a_lease(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {"holderIdentity": "me", "leaseDurationSeconds": 40},
    }
