"""The subresource through which a scheduler gives a pod its node.

Source: Kubernetes 1.37.2, pkg/registry/core/pod/storage/storage.go: assignPod and setPodNodeAndMetadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cli.sandbox.apiserver.kinds import Kind
from cli.sandbox.apiserver.statuses import conflict, invalid, not_found, required, unsupported_value
from cli.sandbox.apiserver.store import Key, Store


def bind(store: Store, kind: Kind, key: Key, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Put the pod on the node that the Binding in `body` targets, and note that it is scheduled; the Status to answer.

    ApiError 409 where the pod has a node or is being deleted, as for a UID or version that is not the pod's.
    """
    target, meta = body.get("target") or {}, body.get("metadata") or {}
    faults = [] if target.get("name") else [required("target.name")]
    if target.get("kind") not in (None, "", "Node"):
        faults.append(unsupported_value("target.kind", target["kind"], ("Node", "<empty>")))
    if faults:
        raise invalid(kind, key.name, faults)
    with store.lock:
        pod = store.find(key)
        if pod is None:
            raise not_found(kind, key.name)
        has = pod["metadata"]
        if any(meta.get(name) not in (None, "", has.get(name)) for name in ("uid", "resourceVersion")):
            raise conflict(kind, key.name)
        if has.get("deletionTimestamp"):
            raise conflict(kind, key.name, f"pod {key.name} is being deleted, cannot be assigned to a host")
        assigned = pod.get("spec", {}).get("nodeName")
        if assigned:
            raise conflict(kind, key.name, f'pod {key.name} is already assigned to node "{assigned}"')
        store.commit(key, _on(pod, target["name"], store.timestamp()))
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _on(pod: Mapping[str, Any], node: str, now: str) -> dict[str, Any]:
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    status = pod.get("status") or {}
    others = [each for each in status.get("conditions") or () if each.get("type") != "PodScheduled"]
    generation = pod["metadata"].get("generation", 0) + 1
    return {
        **pod,
        "metadata": {**pod["metadata"], "generation": generation},
        "spec": {**pod["spec"], "nodeName": node},
        "status": {**status, "conditions": [*others, scheduled]},
    }
