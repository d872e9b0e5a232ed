"""Who else hands out a node's GPUs.

Two masters hand the same GPU out twice, each sure that it is free, so a node that another one serves is not published.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from api import quantities
from api.hardware import Gpu
from api.pci import PciAddress
from controller.attributes import STANDARD

NVIDIA_DRIVER = "gpu.nvidia.com"
_DEVICE_PLUGIN = re.compile(r"nvidia\.com/(gpu|gpu\.shared|mig-.+)")
"""What NVIDIA's device plugin offers: whole, time-sliced (renameByDefault), and MIG with the mixed strategy."""


@dataclass(frozen=True, slots=True)
class ForeignSlice:
    """A slice of another driver, cut down to what is compared; the cluster may have thousands."""

    name: str
    driver: str
    node: str | None
    devices: int
    uuids: frozenset[str] = field(default=frozenset())
    addresses: frozenset[str] = field(default=frozenset())
    """PCI addresses as `api.pci.PciAddress` writes them."""


@dataclass(frozen=True, slots=True)
class Rival:
    """Somebody else serves GPUs of the node."""

    reason: str
    """For the condition: ServedByDevicePlugin or OtherDriver."""
    message: str


def rival_of(
    gpus: Iterable[Gpu], allocatable: Mapping[str, str], foreign: Iterable[ForeignSlice], *, node: str
) -> Rival | None:
    """Who else serves the node's GPUs, None if nobody does.

    `allocatable` is the Node's. Slices that belong to another node are ignored; those of no node are compared by UUID.
    """
    for name in sorted(allocatable):
        if _DEVICE_PLUGIN.fullmatch(name) and quantities.parse(allocatable[name]) > 0:
            return Rival(
                "ServedByDevicePlugin",
                f"the node offers {allocatable[name]} {name} through a device plugin; take the plugin off this node",
            )
    gpus = tuple(gpus)
    uuids = {gpu.uuid.lower() for gpu in gpus}
    addresses = {str(gpu.place.address) for gpu in gpus}
    for other in sorted(foreign, key=lambda slice_: (slice_.driver, slice_.name)):
        if other.node not in (node, None):
            continue
        here = other.node == node
        if other.uuids & uuids or (here and (other.addresses & addresses or other.driver == NVIDIA_DRIVER)):
            if not other.devices:
                continue
            return Rival("OtherDriver", f"driver {other.driver} publishes GPUs of this node; take it off this node")
    return None


def foreign_slice(obj: Mapping[str, Any]) -> ForeignSlice:
    """What matters of another driver's ResourceSlice (parsed JSON); attributes of an unexpected form are passed over."""
    spec = obj["spec"]
    devices = spec.get("devices") or ()
    uuids: set[str] = set()
    addresses: set[str] = set()
    for device in devices:
        for key, value in (device.get("attributes") or {}).items():
            text = value.get("string")
            if not isinstance(text, str):
                continue
            if key in ("uuid", f"{spec['driver']}/uuid"):
                uuids.add(text.lower())
            elif key == f"{STANDARD}/pciBusID":
                try:
                    addresses.add(str(PciAddress.parse(text)))
                except ValueError:
                    continue
    return ForeignSlice(
        name=obj["metadata"]["name"],
        driver=spec["driver"],
        node=spec.get("nodeName"),
        devices=len(devices),
        uuids=frozenset(uuids),
        addresses=frozenset(addresses),
    )
