"""The NodeInventory object: a node's hardware, and who looks after it, as the API server stores it.

`spec` is what the node's plugin found. `status.instances` has one entry for each plugin instance, each applied by a field
manager of its own, so that an instance which goes takes only its own mark away. `status.conditions` are the controller's.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.hardware import Driver, Gpu, LeftOut, Machine, Nic
from api.names import API_VERSION, gpu_device_name
from api.pci import PciAddress, Place
from api.refusals import BadInput, Refused

KIND = "NodeInventory"
INVENTORY_MANAGER = "lanewise-kubeletplugin"
"""Field manager of `spec`, the same for every instance: in a rolling update the newer one takes over."""
CONDITION_PUBLISHED = "Published"


@dataclass(frozen=True, slots=True)
class Owner:
    """The Node that an object belongs to, so that it goes with the node."""

    name: str
    uid: str

    def reference(self, *, controller: bool = False) -> dict[str, Any]:
        """An entry of metadata.ownerReferences."""
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "name": self.name,
            "uid": self.uid,
            **({"controller": True} if controller else {}),
        }


@dataclass(frozen=True, slots=True)
class Instance:
    """One plugin process as it sees itself."""

    id: str
    """The pod's UID, or what the process made up; also in the name of its Lease."""
    registered: bool
    """Whether the kubelet holds on to it at this moment."""
    lease: str
    """Name of the Lease that it renews, in the plugin's namespace."""
    version: str = ""
    started_at: str = ""
    """RFC 3339"""
    registered_at: str = ""
    """RFC 3339; when `registered` last changed."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """A NodeInventory, decoded."""

    node: str
    machine: Machine
    instances: tuple[Instance, ...] = ()
    node_uid: str | None = None
    """UID of the owning Node."""


def instance_manager(instance: str) -> str:
    """Field manager of one instance's entry in `status.instances`."""
    return f"lanewise-instance-{instance}"


def encode_spec(owner: Owner, machine: Machine) -> dict[str, Any]:
    """The object to apply under INVENTORY_MANAGER: metadata and spec. Equal machines give equal objects."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": owner.name, "ownerReferences": [owner.reference()]},
        "spec": {
            "bootID": machine.boot_id,
            "simulated": machine.simulated,
            "driver": _without_none({"version": machine.driver.version, "cudaVersion": machine.driver.cuda_version}),
            "summary": {"gpus": len(machine.gpus), "product": _products(machine)},
            "gpus": [_encode_gpu(gpu) for gpu in machine.gpus],
            "nics": [_encode_nic(nic) for nic in machine.nics],
            "leftOut": [{"what": item.what, "why": item.why} for item in machine.left_out],
        },
    }


def encode_instance(node: str, instance: Instance | None) -> dict[str, Any]:
    """The object to apply to the status subresource under `instance_manager`; None takes the instance's entry away."""
    entries = []
    if instance is not None:
        entry = {
            "id": instance.id,
            "registered": instance.registered,
            "lease": instance.lease,
            "version": instance.version,
            "startedAt": instance.started_at,
            "registeredAt": instance.registered_at,
        }
        entries = [{key: value for key, value in entry.items() if value != ""}]
    status: dict[str, Any] = {"instances": entries} if entries else {}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": node}, "status": status}


def decode(obj: Mapping[str, Any]) -> Inventory:
    """A NodeInventory (parsed JSON). The CRD's schema has checked the shape; a bad PCI address raises Refused with its path."""
    meta, spec = obj["metadata"], obj.get("spec") or {}
    name = meta["name"]
    driver = spec.get("driver") or {}
    owners = [owner for owner in meta.get("ownerReferences") or () if owner.get("kind") == "Node"]
    try:
        machine = Machine(
            gpus=tuple(_decode_gpu(gpu) for gpu in spec.get("gpus") or ()),
            nics=tuple(_decode_nic(nic) for nic in spec.get("nics") or ()),
            driver=Driver(driver.get("version"), driver.get("cudaVersion")),
            boot_id=spec.get("bootID", ""),
            left_out=tuple(LeftOut(item["what"], item["why"]) for item in spec.get("leftOut") or ()),
            simulated=bool(spec.get("simulated")),
        )
    except (ValueError, KeyError) as error:
        problem = f"missing field {error}" if isinstance(error, KeyError) else str(error)
        remedy = "let the node's plugin write it; kubectl delete it, and the plugin makes it anew"
        raise Refused(BadInput(f"nodeinventory {name}", problem, remedy)) from error
    instances = tuple(
        Instance(
            id=entry["id"],
            registered=bool(entry.get("registered")),
            lease=entry.get("lease", ""),
            version=entry.get("version", ""),
            started_at=entry.get("startedAt", ""),
            registered_at=entry.get("registeredAt", ""),
        )
        for entry in (obj.get("status") or {}).get("instances") or ()
    )
    return Inventory(name, machine, instances, owners[0]["uid"] if owners else None)


def _products(machine: Machine) -> str:
    """What kubectl shows: the product's name, or `2 x this, 1 x that` where there are several."""
    names = Counter(gpu.product_name or "unknown" for gpu in machine.gpus)
    if len(names) == 1:
        return next(iter(names))
    return ", ".join(f"{count} x {name}" for name, count in sorted(names.items()))[:1024]


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None and value != ()}


def _encode_place(place: Place) -> dict[str, Any]:
    return _without_none(
        {
            "pciAddress": str(place.address),
            "pcieRoot": place.root,
            "pcieRootStandard": place.root_is_standard,
            "bridges": [str(bridge) for bridge in place.bridges],
            "numaNode": place.numa_node,
        }
    )


def _decode_place(obj: Mapping[str, Any]) -> Place:
    return Place(
        address=PciAddress.parse(obj["pciAddress"]),
        root=obj.get("pcieRoot"),
        root_is_standard=bool(obj.get("pcieRootStandard")),
        bridges=tuple(PciAddress.parse(bridge) for bridge in obj.get("bridges") or ()),
        numa_node=obj.get("numaNode"),
    )


def _encode_gpu(gpu: Gpu) -> dict[str, Any]:
    return {
        "name": gpu_device_name(gpu.place.address),
        **_encode_place(gpu.place),
        **_without_none(
            {
                "uuid": gpu.uuid,
                "minor": gpu.minor,
                "productName": gpu.product_name,
                "brand": gpu.brand,
                "architecture": gpu.architecture,
                "computeCapability": gpu.compute_capability,
                "memoryBytes": gpu.memory_bytes,
                "migEnabled": gpu.mig_enabled,
            }
        ),
    }


def _decode_gpu(obj: Mapping[str, Any]) -> Gpu:
    return Gpu(
        place=_decode_place(obj),
        uuid=obj["uuid"],
        minor=obj.get("minor"),
        product_name=obj.get("productName"),
        brand=obj.get("brand"),
        architecture=obj.get("architecture"),
        compute_capability=obj.get("computeCapability"),
        memory_bytes=obj.get("memoryBytes"),
        mig_enabled=obj.get("migEnabled"),
    )


def _encode_nic(nic: Nic) -> dict[str, Any]:
    return {
        **_encode_place(nic.place),
        "kind": nic.kind,
        **_without_none({"vendor": nic.vendor, "device": nic.device, "physicalFunction": nic.physical_function}),
        "netNames": list(nic.net_names),
        "rdmaNames": list(nic.rdma_names),
    }


def _decode_nic(obj: Mapping[str, Any]) -> Nic:
    return Nic(
        place=_decode_place(obj),
        kind=obj["kind"],
        vendor=obj.get("vendor"),
        device=obj.get("device"),
        net_names=tuple(obj.get("netNames") or ()),
        rdma_names=tuple(obj.get("rdmaNames") or ()),
        physical_function=obj.get("physicalFunction"),
    )
