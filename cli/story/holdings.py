"""Which pod, container and claim has which device, read from the objects of the cluster."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.names import API_GROUP, GPU_DRIVER

Object = Mapping[str, Any]
_STANDARD = "resource.kubernetes.io"


@dataclass(frozen=True, slots=True)
class Device:
    """A device as the scheduler finds it in a ResourceSlice."""

    pool: str
    name: str
    product: str | None = None
    uuid: str | None = None
    memory: str | None = None
    address: str | None = None
    root: str | None = None
    switch: str | None = None
    numa: int | None = None
    taints: tuple[str, ...] = ()
    """Of those that keep new pods away, as `key=value:effect`."""


@dataclass(frozen=True, slots=True)
class Holding:
    """A container that may use a device."""

    pod: str
    container: str
    claim: str
    claim_uid: str
    device: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod that the scheduler could not place."""

    pod: str
    why: str
    """In the scheduler's own words."""


def devices_of(slices: Iterable[Object], driver: str = GPU_DRIVER) -> tuple[Device, ...]:
    """All devices of the driver, in the order in which they are published."""
    return tuple(
        _device(obj["spec"]["pool"]["name"], device)
        for obj in slices
        if obj["spec"]["driver"] == driver
        for device in obj["spec"].get("devices") or ()
    )


def _device(pool: str, device: Object) -> Device:
    def fact(name: str) -> Any:
        return next(iter((device.get("attributes") or {}).get(name, {}).values()), None)

    memory = (device.get("capacity") or {}).get("memory") or {}
    return Device(
        pool=pool,
        name=device["name"],
        product=fact("productName"),
        uuid=fact("uuid"),
        memory=memory.get("value"),
        address=fact(f"{_STANDARD}/pciBusID"),
        root=fact(f"{_STANDARD}/pcieRoot"),
        switch=fact(f"{API_GROUP}/pcieSwitch"),
        numa=fact(f"{_STANDARD}/numaNode"),
        taints=tuple(
            f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"
            for taint in device.get("taints") or ()
            if taint["effect"] in ("NoSchedule", "NoExecute")
        ),
    )


def holdings(pods: Iterable[Object], claims: Iterable[Object]) -> tuple[Holding, ...]:
    """Every container with every device of ours that its claims were allocated."""
    by_name = {claim["metadata"]["name"]: claim for claim in claims}
    found: list[Holding] = []
    for pod in pods:
        names = claim_names(pod)
        for container in pod["spec"]["containers"]:
            for use in (container.get("resources") or {}).get("claims") or ():
                claim = by_name.get(names.get(use["name"], ""))
                for result in results(claim):
                    request = result["request"].partition("/")[0]
                    if use.get("request") in (None, request):
                        meta = claim["metadata"] if claim is not None else {}
                        found.append(
                            Holding(
                                pod["metadata"]["name"], container["name"], meta["name"], meta["uid"], result["device"]
                            )
                        )
    return tuple(found)


def claim_names(pod: Object) -> Mapping[str, str]:
    """The pod's name for each of its claims → the claim's own name, as far as it has one yet."""
    made = {
        status["name"]: status.get("resourceClaimName")
        for status in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    names = {
        entry["name"]: entry.get("resourceClaimName") or made.get(entry["name"])
        for entry in pod["spec"].get("resourceClaims") or ()
    }
    return {name: claim for name, claim in names.items() if claim}


def results(claim: Object | None, driver: str = GPU_DRIVER) -> Sequence[Object]:
    """What a claim was allocated of our devices; nothing for a claim that waits."""
    allocation = ((claim or {}).get("status") or {}).get("allocation") or {}
    found = (allocation.get("devices") or {}).get("results") or ()
    return [result for result in found if result["driver"] == driver]


def why_waiting(pod: Object) -> Waiting | None:
    """Why the scheduler gave the pod no node; None while it has not said so."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return Waiting(pod["metadata"]["name"], condition.get("message") or condition.get("reason") or "")
    return None


def is_running(pod: Object) -> bool:
    """Whether the kubelet has started its containers, and nobody has told it to end them."""
    return (pod.get("status") or {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
