"""What a pod says about its claims, and what is written into its status.

Source: pkg/kubelet/kubelet_pods.go, k8s.io/dynamic-resource-allocation/resourceclaim.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]
_OUR_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


class NotPrepared(Exception):  # noqa: N818  # an outcome, in the kubelet's words
    """Why a pod's claims could not be prepared or unprepared."""


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """A claim of the pod."""

    name: str
    """Of the ResourceClaim."""
    owned: bool
    """Made for the pod, from a template or for extended resources, so that the pod has to be its owner."""


@dataclass(frozen=True, slots=True)
class ContainerUse:
    """What of a claim a container may use."""

    claim: str
    """Name of the ResourceClaim."""
    request: str
    """The request; "" for all."""
    pod_claim: str | None
    """The pod's own name for the claim; None for the claim of extended resources."""


def where(pod: Object) -> str:
    """Namespace/name."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def claims_of(pod: Object) -> list[ClaimUse]:
    """All claims of a pod, used by a container or not. NotPrepared while one has not been made."""
    found = []
    for entry in pod["spec"].get("resourceClaims") or ():
        if entry.get("resourceClaimName"):
            found.append(ClaimUse(entry["resourceClaimName"], owned=False))
        elif entry.get("resourceClaimTemplateName"):
            made = _made(pod)
            if entry["name"] not in made:
                raise NotPrepared(f'pod "{where(pod)}": ResourceClaim not created yet')
            if name := made[entry["name"]]:
                found.append(ClaimUse(name, owned=True))
        else:
            what = f'pod "{where(pod)}", spec.resourceClaim "{entry["name"]}"'
            raise NotPrepared(f"{what}: none of the supported fields are set")
    if name := _extended(pod).get("resourceClaimName"):
        # Written by the scheduler itself, so nobody checks whose it is (manager.go, resourceclaim.Name).
        found.append(ClaimUse(name, owned=False))
    return found


def uses_of(pod: Object, container: Object) -> list[ContainerUse]:
    """What a container may use, in the order of the pod's claims."""
    made = _made(pod)
    wanted = (container.get("resources") or {}).get("claims") or ()
    found = [
        ContainerUse(name, use.get("request") or "", entry["name"])
        for entry in pod["spec"].get("resourceClaims") or ()
        if (name := entry.get("resourceClaimName") or made.get(entry["name"]))
        for use in wanted
        if use["name"] == entry["name"]
    ]
    extended = _extended(pod)
    return found + [
        ContainerUse(extended["resourceClaimName"], mapping["requestName"], None)
        for mapping in extended.get("requestMappings") or ()
        if mapping["containerName"] == container["name"]
    ]


def is_over(pod: Object) -> bool:
    """Whether none of its containers will run any more."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def running(pod: Object, health: Mapping[str, Sequence[Object]], now: str) -> dict[str, Any]:
    """The status of a pod whose containers run: what of it is ours to write. `health` is allocatedResourcesStatus by container.

    Times that are there already stay as they are.
    """
    before = pod.get("status") or {}
    containers = {each["name"]: each for each in before.get("containerStatuses") or ()}
    return {
        "phase": "Running",
        "startTime": before.get("startTime") or now,
        "conditions": _conditions(before.get("conditions") or (), now),
        "containerStatuses": [
            _container(each, containers.get(each["name"]), health.get(each["name"]) or (), now)
            for each in pod["spec"]["containers"]
        ],
    }


def _container(container: Object, before: Object | None, health: Sequence[Object], now: str) -> dict[str, Any]:
    started = ((before or {}).get("state") or {}).get("running") or {"startedAt": now}
    status = {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": {"running": started},
    }
    return {**status, "allocatedResourcesStatus": list(health)} if health else status


def _conditions(before: Sequence[Object], now: str) -> list[Object]:
    kept = {each["type"]: each for each in before}
    for name in _OUR_CONDITIONS:
        if kept.get(name, {}).get("status") != "True":
            kept[name] = {"type": name, "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    return list(kept.values())


def _made(pod: Object) -> dict[str, str | None]:
    """The pod's names for its claims, and the names of those made from templates; None for one that is not needed."""
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    return {status["name"]: status.get("resourceClaimName") for status in statuses}


def _extended(pod: Object) -> Object:
    return (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
