"""What is asked of the allocator, and the answer when there is one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]
"""A Kubernetes object or a part of one, as JSON gives it."""


@dataclass(frozen=True, slots=True)
class DeviceID:
    """What names a device in the whole cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


@dataclass(frozen=True, slots=True)
class Question:
    """Can these claims be met together on this node?"""

    node: Object
    """The Node."""
    slices: tuple[Object, ...]
    """All ResourceSlices of the cluster: those of other nodes tell whether a pool is complete."""
    classes: Mapping[str, Object]
    """DeviceClasses by name."""
    claims: tuple[Object, ...]
    """The ResourceClaims (resource.k8s.io/v1) of one pod that have no allocation yet, in the pod's order."""
    held: Mapping[DeviceID, str]
    """Devices that are allocated already, with the claim that has each; see `holders`."""


@dataclass(frozen=True, slots=True)
class Allocated:
    """The claims can be met."""

    allocations: tuple[Object, ...]
    """A `status.allocation` for each claim of the question, without a timestamp."""


def holders(claims: Iterable[Object]) -> dict[DeviceID, str]:
    """Who holds which device, by the allocations of all claims (`namespace/name`).

    Devices that were given for administration alone do not count as held (dynamicresources, allocateddevices.go).
    """
    found: dict[DeviceID, str] = {}
    for claim in claims:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            if not result.get("adminAccess") and not result.get("shareID"):
                found[DeviceID(result["driver"], result["pool"], result["device"])] = reference(claim)
    return found


def reference(claim: Object) -> str:
    """`namespace/name`."""
    meta = claim["metadata"]
    return f"{meta.get('namespace', '')}/{meta['name']}"
