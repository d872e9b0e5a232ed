"""Right objects of resource.k8s.io, with every field that there is: what nearly right ones are made of."""

from typing import Any

_META = {"name": "x", "namespace": "default"}
_VERSION = "resource.k8s.io/v1"


def _slice(**spec: Any) -> dict[str, Any]:
    pool = {"name": "node-a/gpu.lanewise.dev", "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": _VERSION,
        "kind": "ResourceSlice",
        "metadata": {"name": "x"},
        "spec": {"driver": "gpu.lanewise.dev", "pool": pool, **spec},
    }


GPU = {
    "name": "gpu-65-00-0",
    "attributes": {
        "type": {"string": "gpu"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:62"},
        "resource.kubernetes.io/numaNode": {"int": 0},
        "driverVersion": {"version": "580.105.8"},
        "ready": {"bool": True},
    },
    "capacity": {"memory": {"value": "81559Mi"}},
}
_SHARED_GPU = {
    "name": "gpu-1",
    "allowMultipleAllocations": True,
    "capacity": {
        "memory": {
            "value": "80Gi",
            "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "max": "80Gi", "step": "1Gi"}},
        },
        "cores": {"value": "100", "requestPolicy": {"default": "10", "validValues": ["10", "20"]}},
    },
}
TAINT = {
    "key": "lanewise.dev/unreachable",
    "value": "silent",
    "effect": "NoSchedule",
    "timeAdded": "2026-01-01T00:00:00Z",
}
SELECTOR = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}

SLICES: tuple[dict[str, Any], ...] = (
    _slice(nodeName="node-a", devices=[GPU, {**GPU, "name": "gpu-75-00-0", "taints": [TAINT]}]),
    _slice(nodeName="node-a", devices=[_SHARED_GPU]),
    _slice(
        perDeviceNodeSelection=True,
        devices=[
            {
                "name": "gpu-0",
                "nodeName": "node-a",
                "consumesCounters": [{"counterSet": "card-0", "counters": {"memory": {"value": "10Gi"}}}],
            },
            {"name": "gpu-1", "nodeSelector": SELECTOR},
            {
                "name": "gpu-2",
                "allNodes": True,
                "bindsToNode": True,
                "bindingConditions": ["a.b/ready"],
                "bindingFailureConditions": ["a.b/failed"],
            },
        ],
    ),
    _slice(nodeSelector=SELECTOR, sharedCounters=[{"name": "card-0", "counters": {"memory": {"value": "80Gi"}}}]),
)

WISH = {
    "deviceClassName": "gpu.lanewise.dev",
    "selectors": [{"cel": {"expression": 'device.driver == "gpu.lanewise.dev"'}}],
    "allocationMode": "ExactCount",
    "count": 2,
    "tolerations": [
        {
            "key": "lanewise.dev/unreachable",
            "operator": "Equal",
            "value": "silent",
            "effect": "NoExecute",
            "tolerationSeconds": 60,
        },
        {"operator": "Exists"},
    ],
    "capacity": {"requests": {"memory": "16Gi"}},
}
_CLAIM = {
    "devices": {
        "requests": [
            {"name": "gpus", "exactly": {**WISH, "adminAccess": True}},
            {
                "name": "one-of",
                "firstAvailable": [{"name": "big", **WISH}, {"name": "small", "deviceClassName": "gpu.lanewise.dev"}],
            },
            {"name": "all", "exactly": {"deviceClassName": "gpu.lanewise.dev", "allocationMode": "All"}},
        ],
        "constraints": [
            {"requests": ["gpus", "one-of/big"], "matchAttribute": "resource.kubernetes.io/pcieRoot"},
            {"distinctAttribute": "gpu.lanewise.dev/uuid"},
        ],
        "config": [
            {
                "requests": ["gpus"],
                "opaque": {"driver": "gpu.lanewise.dev", "parameters": {"kind": "GpuConfig", "a": [1, "b"]}},
            },
        ],
    }
}
CLAIMS: tuple[dict[str, Any], ...] = (
    {"apiVersion": _VERSION, "kind": "ResourceClaim", "metadata": _META, "spec": _CLAIM},
    {
        "apiVersion": _VERSION,
        "kind": "ResourceClaimTemplate",
        "metadata": _META,
        "spec": {"metadata": {"labels": {"a": "b"}}, "spec": _CLAIM},
    },
)
CLASSES: tuple[dict[str, Any], ...] = (
    {
        "apiVersion": _VERSION,
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.lanewise.dev"},
        "spec": {
            "selectors": [{"cel": {"expression": 'device.driver == "gpu.lanewise.dev"'}}],
            "config": [{"opaque": {"driver": "gpu.lanewise.dev", "parameters": {"a": "b"}}}],
            "extendedResourceName": "nvidia.com/gpu",
        },
    },
)
ALLOCATED: dict[str, Any] = {
    "apiVersion": _VERSION,
    "kind": "ResourceClaim",
    "metadata": {**_META, "uid": "0b5fa1a3-6c5c-4f0c-9a53-6f0f5d0f4a11", "resourceVersion": "1"},
    "spec": _CLAIM,
    "status": {
        "allocation": {
            "devices": {
                "results": [
                    {
                        "request": "gpus",
                        "driver": "gpu.lanewise.dev",
                        "pool": "node-a/gpu.lanewise.dev",
                        "device": "gpu-0",
                    },
                    {
                        "request": "one-of/big",
                        "driver": "gpu.lanewise.dev",
                        "pool": "node-a/gpu.lanewise.dev",
                        "device": "gpu-1",
                    },
                ],
                "config": [
                    {"source": "FromClaim", "requests": ["gpus"], "opaque": {"driver": "a.b", "parameters": {"a": "b"}}}
                ],
            },
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]}
                ]
            },
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "0b5fa1a3-6c5c-4f0c-9a53-6f0f5d0f4a12"}],
        "devices": [
            {
                "driver": "gpu.lanewise.dev",
                "pool": "node-a/gpu.lanewise.dev",
                "device": "gpu-0",
                "data": {"a": "b"},
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                        "reason": "Ok",
                        "message": "",
                    },
                ],
            },
        ],
    },
}
"""A claim whose status is to be written."""
