"""The Node that the kubelet makes for itself."""

import platform
from collections.abc import Mapping
from typing import Any

from cli.sandbox.apiserver.discovery import VERSION

CAPACITY: Mapping[str, str] = {"cpu": "64", "memory": "512Gi", "pods": "110"}
"""Made up, like the machine: not what this host has."""
_READY = {
    "type": "Ready",
    "status": "True",
    "reason": "KubeletReady",
    "message": "kubelet is posting ready status",
}


def node_object(name: str, now: str) -> dict[str, Any]:
    """A Node that is ready; `now` as the API writes times."""
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": _architecture()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": ready_status(name, now, {}),
    }


def ready_status(name: str, now: str, before: Mapping[str, Any]) -> dict[str, Any]:
    """The status of a ready Node; what others wrote about it stays."""
    others = [each for each in before.get("conditions") or () if each["type"] != "Ready"]
    return {
        "capacity": {**CAPACITY, **(before.get("capacity") or {})},
        "allocatable": {**CAPACITY, **(before.get("allocatable") or {})},
        "addresses": [{"type": "Hostname", "address": name}],
        "conditions": [*others, {**_READY, "lastHeartbeatTime": now, "lastTransitionTime": now}],
        "nodeInfo": {
            "architecture": _architecture(),
            "bootID": "",
            "containerRuntimeVersion": "none://",
            "kernelVersion": platform.release(),
            "kubeProxyVersion": "",
            "kubeletVersion": VERSION["gitVersion"],
            "machineID": "",
            "operatingSystem": "linux",
            "osImage": "",
            "systemUUID": "",
        },
    }


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
