"""What nearly right objects of resource.k8s.io are made of: right ones, and values worth putting into them."""

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


_GPU = {
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
        "memory": {"value": "80Gi", "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "max": "80Gi", "step": "1Gi"}}},
        "cores": {"value": "100", "requestPolicy": {"default": "10", "validValues": ["10", "20"]}},
    },
}  # fmt: skip
_TAINT = {"key": "lanewise.dev/unreachable", "value": "silent", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
_SELECTOR = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}

SLICES: tuple[dict[str, Any], ...] = (
    _slice(nodeName="node-a", devices=[_GPU, {**_GPU, "name": "gpu-75-00-0", "taints": [_TAINT]}]),
    _slice(nodeName="node-a", devices=[_SHARED_GPU]),
    _slice(
        perDeviceNodeSelection=True,
        devices=[
            {
                "name": "gpu-0",
                "nodeName": "node-a",
                "consumesCounters": [{"counterSet": "card-0", "counters": {"memory": {"value": "10Gi"}}}],
            },
            {"name": "gpu-1", "nodeSelector": _SELECTOR},
            {
                "name": "gpu-2",
                "allNodes": True,
                "bindsToNode": True,
                "bindingConditions": ["a.b/ready"],
                "bindingFailureConditions": ["a.b/failed"],
            },
        ],
    ),
    _slice(nodeSelector=_SELECTOR, sharedCounters=[{"name": "card-0", "counters": {"memory": {"value": "80Gi"}}}]),
)

_WISH = {
    "deviceClassName": "gpu.lanewise.dev",
    "selectors": [{"cel": {"expression": 'device.driver == "gpu.lanewise.dev"'}}],
    "allocationMode": "ExactCount",
    "count": 2,
    "tolerations": [
        {"key": "lanewise.dev/unreachable", "operator": "Equal", "value": "silent", "effect": "NoExecute", "tolerationSeconds": 60},
        {"operator": "Exists"},
    ],
    "capacity": {"requests": {"memory": "16Gi"}},
}  # fmt: skip
_CLAIM = {
    "devices": {
        "requests": [
            {"name": "gpus", "exactly": {**_WISH, "adminAccess": True}},
            {
                "name": "one-of",
                "firstAvailable": [{"name": "big", **_WISH}, {"name": "small", "deviceClassName": "gpu.lanewise.dev"}],
            },
            {"name": "all", "exactly": {"deviceClassName": "gpu.lanewise.dev", "allocationMode": "All"}},
        ],
        "constraints": [
            {"requests": ["gpus", "one-of/big"], "matchAttribute": "resource.kubernetes.io/pcieRoot"},
            {"distinctAttribute": "gpu.lanewise.dev/uuid"},
        ],
        "config": [
            {"requests": ["gpus"], "opaque": {"driver": "gpu.lanewise.dev", "parameters": {"kind": "GpuConfig", "a": [1, "b"]}}},
        ],
    }
}  # fmt: skip
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
                    {"request": "gpus", "driver": "gpu.lanewise.dev", "pool": "node-a/gpu.lanewise.dev", "device": "gpu-0"},
                    {"request": "one-of/big", "driver": "gpu.lanewise.dev", "pool": "node-a/gpu.lanewise.dev", "device": "gpu-1"},
                ],
                "config": [{"source": "FromClaim", "requests": ["gpus"], "opaque": {"driver": "a.b", "parameters": {"a": "b"}}}],
            },
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]}]},
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "0b5fa1a3-6c5c-4f0c-9a53-6f0f5d0f4a12"}],
        "devices": [
            {
                "driver": "gpu.lanewise.dev",
                "pool": "node-a/gpu.lanewise.dev",
                "device": "gpu-0",
                "data": {"a": "b"},
                "conditions": [
                    {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Ok", "message": ""},
                ],
            },
        ],
    },
}  # fmt: skip
"""A claim whose status is to be written."""

_LONG = "a" * 64
_TEXTS = ("", "a", "A", "a-", "-a", "a.b", "a..b", "a/b", "a.b/c", "a/b/c", "a b", "é", "a_b", "1a", "0", _LONG, "a" * 33, "true")
_COUNTS = (0, 1, -1, 2, 2**31 - 1, 2**31, 2**63 - 1)
_AMOUNTS = ("0", "1", "-1", "1Gi", "1024Mi", "0.5", "1e3", "1E3", "1m", "1n", "0.1n", "1Ki", "1023Ki", "1.5Gi", "12345678901234567890",
            "1k", "1000", "100P", "9E", "9Ei", "+1", "1.", ".5", "Gi", "", "1 ", "1GiB", "1e", "1e3Gi", "a", "0x1", "1_000")  # fmt: skip
NAMES = (*_TEXTS, "gpu.lanewise.dev/uuid", "A.b/c", "a.b/" + "c" * 33, "a" * 64 + "/b", "/b", "a/", "a.b/1c", "memory", "uuid")
"""Of attributes, capacities, counters, labels; of fields they make unknown ones."""


def _many(count: int, value: Any) -> dict[str, Any]:
    return {f"a{number}": value for number in range(count)}


_NODE_NAMES = ("node-a", "", "Node", "a..b", "a" * 254, "a" * 253, "a.b", _LONG)
FIELDS: dict[str, tuple[Any, ...]] = {
    "name": (*_TEXTS, "gpu-0", "node-a/gpu.lanewise.dev", "a/b/c", "a//b", "a" * 253, "a" * 254, "a" * 63),
    "driver": (*_TEXTS, "gpu.lanewise.dev", "GPU.lanewise.dev", "a" * 63),
    "pool": ("a", "a/b", "", "a//b", "A", "a" * 254, "node-a/gpu.lanewise.dev"),
    "device": (*_TEXTS, "gpu-0", "gpu-1", "a" * 63),
    "generation": _COUNTS,
    "resourceSliceCount": _COUNTS,
    "nodeName": _NODE_NAMES,
    "nodeSelector": (_SELECTOR, {}, {"nodeSelectorTerms": []}, {"nodeSelectorTerms": [{}]}, {"nodeSelectorTerms": [{}, {}]},
                     {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Near"}]}]},
                     {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}),
    "allNodes": (True, False),
    "perDeviceNodeSelection": (True, False),
    "bindsToNode": (True, False),
    "allowMultipleAllocations": (True, False),
    "devices": ([], [_GPU] * 2, [{"name": f"d{n}"} for n in range(65)], [{"name": f"d{n}"} for n in range(128)],
                [{"name": f"d{n}"} for n in range(129)], [{"name": f"d{n}", "taints": [_TAINT]} for n in range(64)],
                [{"name": "d", "taints": [_TAINT]}, *({"name": f"d{n}"} for n in range(64))]),
    "attributes": ({}, _many(31, {"int": 1}), _many(32, {"int": 1}), _many(33, {"int": 1}), {"a": {}}, {"a": {"int": 1, "bool": True}}),
    "capacity": ({}, _many(27, {"value": "1"}), _many(28, {"value": "1"}), {"a": {"value": "1Gi"}}, {"a": {}},
                 {"requests": {"memory": "1Gi"}}, {"requests": {}}),
    "string": ("", "a", _LONG, _LONG + "a", "é" * 32, "é" * 33, "\n"),
    "version": ("1.2.3", "1.2", "1.02.3", "v1.2.3", "1.2.3-rc.1+b", "1.2.3-01", "", "1.2.3-" + "a" * 58, "1.2.3-" + "a" * 59,
                "18446744073709551615.0.0", "18446744073709551616.0.0", "1.2.3-18446744073709551616", "1.2.3\n"),
    "int": (0, -1, 2**63 - 1, -(2**63)),
    "bool": (True, False),
    "value": (*_AMOUNTS, *_TEXTS),
    "requestPolicy": ({}, {"default": "1"}, {"default": "1", "validValues": ["1", "2"]}, {"default": "3", "validValues": ["1", "2"]},
                      {"default": "1", "validRange": {"min": "1"}}, {"validRange": {"min": "1"}},
                      {"default": "1", "validValues": ["1"], "validRange": {"min": "1"}}),
    "default": _AMOUNTS, "min": _AMOUNTS, "max": _AMOUNTS, "step": _AMOUNTS,
    "validValues": ([], ["1"], ["1", "1"], ["2", "1"], ["1", "a"], [str(n) for n in range(1, 12)]),
    "validRange": ({}, {"min": "1"}, {"min": "2", "max": "1"}, {"min": "1", "max": "10", "step": "3"}, {"max": "5"}, {"step": "1"}),
    "taints": ([], [_TAINT] * 2, [_TAINT] * 16, [_TAINT] * 17, [{"key": "a"}], [{"effect": "NoSchedule"}], [{**_TAINT, "value": ""}]),
    "tolerations": ([], [{}], [{"operator": "Exists"}] * 16, [{"operator": "Exists"}] * 17, [{"key": "a"}], [{"operator": "Equal"}]),
    "key": (*_TEXTS, "a.b/c", "a" * 63),
    "effect": ("NoSchedule", "NoExecute", "None", "", "PreferNoSchedule"),
    "operator": ("Equal", "Exists", "", "In"),
    "tolerationSeconds": _COUNTS,
    "timeAdded": ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00+01:00"),
    "consumesCounters": ([], [{"counterSet": "a", "counters": {"m": {"value": "1"}}}] * 2, [{"counterSet": "a"}], [{"counters": {}}],
                         [{"counterSet": name, "counters": {"m": {"value": "1"}}} for name in "abc"],
                         [{"counterSet": "a", "counters": _many(33, {"value": "1"})}], [{"counterSet": "a", "counters": _many(32, {"value": "1"})}]),
    "counterSet": _TEXTS,
    "counters": ({}, {"m": {"value": "1"}}, {"M": {"value": "1"}}, _many(32, {"value": "1"}), _many(33, {"value": "1"})),
    "sharedCounters": ([], [{"name": "a", "counters": {"m": {"value": "1"}}}], [{"name": f"a{n}", "counters": {"m": {"value": "1"}}} for n in range(9)],
                       [{"name": f"a{n}", "counters": {"m": {"value": "1"}}} for n in range(8)], [{"name": "a"}]),
    "bindingConditions": ([], ["a"], ["a", "a"], ["a b"], list("abcd"), list("abcde"), [""]),
    "bindingFailureConditions": ([], ["a"], ["a", "a"], ["b"], ["a b"], list("efgh"), list("efghi")),
    "requests": ([], ["gpus"], ["gpus", "gpus"], ["other"], ["one-of"], ["one-of/big"], ["one-of/other"], ["gpus/x"], [""], ["gpus"] * 33),
    "exactly": (_WISH, {"deviceClassName": "a"}, {}, {"deviceClassName": "a", "allocationMode": "All"}),
    "firstAvailable": ([], [{"name": "a", "deviceClassName": "a"}], [{"name": "a", "deviceClassName": "a"}] * 2,
                       [{"name": f"a{n}", "deviceClassName": "a"} for n in range(8)], [{"name": f"a{n}", "deviceClassName": "a"} for n in range(9)], [{}]),
    "deviceClassName": (*_TEXTS, "gpu.lanewise.dev", "a" * 253, "a" * 254),
    "allocationMode": ("ExactCount", "All", "", "Most"),
    "count": (0, 1, -1, 2**31),
    "adminAccess": (True, False),
    "selectors": ([], [{}], [{"cel": {}}], [{"cel": {"expression": ""}}], [{"cel": {"expression": "true"}}] * 32,
                  [{"cel": {"expression": "true"}}] * 33, [{"cel": {"expression": "true" + " " * 10236}}], [{"cel": {"expression": "true" + " " * 10237}}]),
    "cel": ({}, {"expression": "true"}),
    "expression": ("", "true"),
    "constraints": ([], [{}], [{"matchAttribute": "a.b/c"}] * 32, [{"matchAttribute": "a.b/c"}] * 33, [{"requests": ["gpus"]}]),
    "matchAttribute": ("a.b/c", "c", "", "a/b/c", "A.b/c", "a.b/" + "c" * 32, "a.b/" + "c" * 33, "a" * 63 + "/c", "a" * 64 + "/c", "a.b/1"),
    "distinctAttribute": ("a.b/c", "c", "", "a.b/-"),
    "config": ([], [{}], [{"opaque": {"driver": "a.b", "parameters": {}}}] * 32, [{"opaque": {"driver": "a.b", "parameters": {}}}] * 33),
    "opaque": ({}, {"driver": "a.b"}, {"driver": "a.b", "parameters": {}}, {"parameters": {}}, {"driver": "a.b", "parameters": []}),
    "parameters": ({}, {"a": "b" * 10230}, {"a": "b" * 10240}, [], "a", 1, {"kind": "x"}),
    "extendedResourceName": ("nvidia.com/gpu", "", "gpu", "a/b/c", "kubernetes.io/gpu", "requests.nvidia.com/gpu", "cpu", "A.b/c", "a" * 300 + "/b"),
    "labels": ({}, {"a": "b"}, {"a b": "c"}, {"a": "b c"}),
    "annotations": ({}, {"a": "b"}, {"a b": "c"}),
    "finalizers": ([], ["a.b/c"], ["a"], ["a b/c"]),
    "ownerReferences": ([], [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}], [{"apiVersion": "v1", "kind": "Node", "name": "n"}],
                        [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": True}] * 2),
    "results": ([], [{}]),
    "allocation": ({}, {"devices": {}}),
    "request": ("gpus", "one-of/big", "one-of", "other", "", "gpus/x"),
    "shareID": ("0b5fa1a3-6c5c-4f0c-9a53-6f0f5d0f4a11", "", "a"),
    "source": ("FromClaim", "FromClass", "", "Other"),
    "reservedFor": ([], [{}], [{"resource": "pods", "name": "p", "uid": "u"}] * 2),
    "resource": ("pods", ""), "uid": ("", "u"), "apiGroup": ("", "apps"),
    "data": ({}, {"a": "b"}, [], "a", 1),
    "conditions": ([], [{}], [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Ok", "message": ""}] * 2),
    "networkData": ({}, {"interfaceName": "eth0", "ips": ["10.0.0.1/24"], "hardwareAddress": "a"}, {"ips": ["10.0.0.1"]}),
    "unknown": (1,),
}  # fmt: skip
"""By name of a field, what is near the limits of what it may hold, of the type that it has."""


def same_type(key: Any, value: Any) -> tuple[Any, ...]:
    """What belongs to a field of this name where the value there is of its type, and so may be read."""
    near = FIELDS.get(key, _TEXTS)
    return tuple(other for other in near if type(other) is type(value))
