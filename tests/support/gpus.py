"""GPUs, machines and inventories for tests, with defaults that a test overrides where it matters."""

from typing import Any

from api.hardware import Driver, Gpu, Machine
from api.inventory import Instance, Owner, encode_instance, encode_spec
from api.pci import PciAddress, Place

NODE_UID = "node-uid-1"


def a_gpu(bus: int = 0x65, **changes: Any) -> Gpu:
    """An H100 below a switch."""
    place = changes.pop("place", None) or Place(
        address=changes.pop("address", PciAddress(0, bus, 0, 0)),
        root=f"pci0000:{bus - 3:02x}",
        root_is_standard=True,
        bridges=(PciAddress(0, bus - 3, 1, 0), PciAddress(0, bus - 2, 0, 0), PciAddress(0, bus - 1, 0, 0)),
        numa_node=changes.pop("numa_node", 0),
    )
    fields: dict[str, Any] = {
        "uuid": f"GPU-00000000-0000-0000-0000-0000000000{bus:02x}",
        "minor": 0,
        "product_name": "NVIDIA H100 80GB HBM3",
        "brand": "Nvidia",
        "architecture": "Hopper",
        "compute_capability": "9.0",
        "memory_bytes": 81559 * 2**20,
        "mig_enabled": False,
    }
    return Gpu(place=place, **{**fields, **changes})


def a_machine(count: int = 8, **changes: Any) -> Machine:
    """A machine of so many GPUs."""
    gpus = tuple(a_gpu(0x10 + 8 * number) for number in range(count)) if count <= 30 else many_gpus(count)
    return Machine(**{"gpus": gpus, "driver": Driver("580.105.08", "13.0"), "boot_id": "boot-1", **changes})


def many_gpus(count: int) -> tuple[Gpu, ...]:
    """More GPUs than a machine has, in domains of their own."""
    return tuple(
        a_gpu(place=Place(PciAddress(number + 1, 0, 0, 0)), uuid=f"GPU-{number:08x}") for number in range(count)
    )


def an_inventory(
    node: str = "node-a",
    machine: Machine | None = None,
    instances: tuple[Instance, ...] = (),
    *,
    node_uid: str = NODE_UID,
    version: str = "1",
) -> dict[str, Any]:
    """A NodeInventory as the API server stores it."""
    obj = encode_spec(Owner(node, node_uid), machine if machine is not None else a_machine(2))
    entries = [encode_instance(node, instance)["status"]["instances"][0] for instance in instances]
    obj["metadata"] |= {"uid": f"inventory-of-{node}", "resourceVersion": version}
    obj["status"] = {"instances": entries}
    return obj


def an_instance(name: str = "i1", *, registered: bool = True) -> Instance:
    """A plugin instance."""
    return Instance(name, registered=registered, lease=f"lease-{name}")
