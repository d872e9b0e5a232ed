"""The NodeInventory object: a node's hardware, and who looks after it, as the API server stores it.

`spec` is what the node's plugin found. `status.instances` has one entry for each plugin instance, each applied by a field
manager of its own, so that an instance which goes takes only its own mark away. `status.conditions` are the controller's.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from api.hardware import Driver, Gpu, LeftOut, Machine, Nic
from api.health import AILMENTS_MAX, Ailment
from api.names import API_VERSION, gpu_device_name
from api.pci import PciAddress, Place
from api.refusals import BadInput, Refused

_T = TypeVar("_T")

KIND = "NodeInventory"
INVENTORY_MANAGER = "lanewise-kubeletplugin"
"""Field manager of `spec`, the same for every instance: in a rolling update the newer one takes over."""
CONDITION_PUBLISHED = "Published"
LEASE_SECONDS = 40
"""After this long without a renewal the controller takes a plugin instance for silent (docs/architecture.md)."""


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
            "gpus": [encode_gpu(gpu) for gpu in machine.gpus],
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
    """A NodeInventory (parsed JSON). The CRD's schema has checked the shape, where it is as we made it: Refused, naming the
    object, for a bad PCI address and for what a schema would not have let in."""
    name = obj["metadata"]["name"]
    try:
        return _decode(obj)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        problem = f"missing field {error}" if isinstance(error, KeyError) else str(error)
        remedy = "let the node's plugin write it; kubectl delete it, and the plugin makes it anew"
        raise Refused(BadInput(f"nodeinventory {name}", problem, remedy)) from error


def _decode(obj: Mapping[str, Any]) -> Inventory:
    meta, spec = obj["metadata"], _mapping(obj.get("spec") or {})
    driver, status = _mapping(spec.get("driver") or {}), _mapping(obj.get("status") or {})
    owners = [owner for owner in _list(meta, "ownerReferences") if owner.get("kind") == "Node"]
    machine = Machine(
        gpus=tuple(decode_gpu(gpu) for gpu in _list(spec, "gpus")),
        nics=tuple(_decode_nic(nic) for nic in _list(spec, "nics")),
        driver=Driver(_optional(driver, "version", str), _optional(driver, "cudaVersion", str)),
        boot_id=_optional(spec, "bootID", str) or "",
        left_out=tuple(LeftOut(_text(item, "what"), _text(item, "why")) for item in _list(spec, "leftOut")),
        simulated=bool(spec.get("simulated")),
    )
    instances = tuple(
        Instance(
            id=_text(entry, "id"),
            registered=bool(entry.get("registered")),
            lease=_optional(entry, "lease", str) or "",
            version=_optional(entry, "version", str) or "",
            started_at=_optional(entry, "startedAt", str) or "",
            registered_at=_optional(entry, "registeredAt", str) or "",
        )
        for entry in _list(status, "instances")
    )
    return Inventory(meta["name"], machine, instances, _text(owners[0], "uid") if owners else None)


def _products(machine: Machine) -> str:
    """What kubectl shows: the product's name, or `2 x this, 1 x that` where there are several."""
    names = Counter(gpu.product_name or "unknown" for gpu in machine.gpus)
    if len(names) == 1:
        return next(iter(names))
    return ", ".join(f"{count} x {name}" for name, count in sorted(names.items()))[:1024]


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


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
        address=PciAddress.parse(_text(obj, "pciAddress")),
        root=_optional(obj, "pcieRoot", str),
        root_is_standard=bool(obj.get("pcieRootStandard")),
        bridges=tuple(PciAddress.parse(bridge) for bridge in _texts(obj, "bridges")),
        numa_node=_optional(obj, "numaNode", int),
    )


def encode_gpu(gpu: Gpu) -> dict[str, Any]:
    """One entry of `spec.gpus`."""
    ailments = [
        {
            "kind": ailment.kind,
            "code": ailment.code,
            "since": ailment.since,
            "message": ailment.message,
            "remedy": ailment.remedy,
        }
        for ailment in gpu.ailments[:AILMENTS_MAX]
    ]
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
        **({"ailments": ailments} if ailments else {}),
    }


def decode_gpu(obj: Mapping[str, Any]) -> Gpu:
    """What `encode_gpu` made. ValueError, KeyError, TypeError or AttributeError for what it did not make."""
    return Gpu(
        place=_decode_place(obj),
        uuid=_text(obj, "uuid"),
        minor=_optional(obj, "minor", int),
        product_name=_optional(obj, "productName", str),
        brand=_optional(obj, "brand", str),
        architecture=_optional(obj, "architecture", str),
        compute_capability=_optional(obj, "computeCapability", str),
        memory_bytes=_optional(obj, "memoryBytes", int),
        mig_enabled=_optional(obj, "migEnabled", bool),
        ailments=tuple(
            Ailment(*(_text(item, field) for field in ("kind", "code", "since", "message", "remedy")))
            for item in _list(obj, "ailments")
        ),
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
        kind=_text(obj, "kind"),
        vendor=_optional(obj, "vendor", str),
        device=_optional(obj, "device", str),
        net_names=_texts(obj, "netNames"),
        rdma_names=_texts(obj, "rdmaNames"),
        physical_function=_optional(obj, "physicalFunction", str),
    )


def _optional(obj: Mapping[str, Any], field: str, kind: type[_T]) -> _T | None:
    value = obj.get(field)
    if value is None:
        return None
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{field} is {value!r}, no {kind.__name__}")
    return value


def _text(obj: Mapping[str, Any], field: str) -> str:
    text = _optional(obj, field, str)
    if text is None:
        raise KeyError(field)
    return text


def _texts(obj: Mapping[str, Any], field: str) -> tuple[str, ...]:
    texts = _list(obj, field)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"{field} is {texts!r}, no list of str")
    return tuple(texts)


def _list(obj: Mapping[str, Any], field: str) -> list[Any]:
    return _optional(obj, field, list) or []


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r} where an object belongs")
    return value
