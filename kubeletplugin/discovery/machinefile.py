"""A machine as a person writes it down: its GPUs, its NICs, and the PCIe tree above them.

Strict, and all that is wrong is said at once with its field. Rendering a machine is `kubeletplugin.discovery.simulated`.

    name: box                            # required, a DNS label
    description: what is known of it, and what is filled in
    driver: {version: 580.105.08, cuda: "13.0"}
    eachGpu: {product: NVIDIA H100 80GB HBM3, memoryMiB: 81559}   # what every GPU has that does not say otherwise
    gpus:
    - {pci: 0000:53:00.0, numa: 0}       # also: minor, uuid, brand, architecture, computeCapability, mig, device, health
    eachNic: {kind: infiniband, vendor: "0x15b3"}
    nics:
    - {pci: 0000:54:00.0, numa: 0, net: [ib0], rdma: [mlx5_0]}    # also: device, physicalFunction
    others:                              # functions that are neither: NVSwitches, storage
    - {pci: 0000:01:00.0, class: "0x068000", vendor: "0x10de", device: "0x22a3"}
    tree:                                # host bridges, below them bridges, below them what is listed above
      pci0000:50:
        0000:50:01.0:                    # root port
          0000:51:00.0:                  # a switch: its upstream port,
            0000:52:00.0: [0000:53:00.0] # and its downstream ports
            0000:52:01.0: [0000:54:00.0]

A root may have the path in front that sysfs shows: `LNXSYSTM:00/…/VMBUS:00/<guid>/pci0001:00`. Without a tree entry nothing
is placed, so every device must be in it exactly once.
"""

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from api.hardware import Driver, Gpu, Nic
from api.names import is_dns_label
from api.pci import PciAddress, Place
from api.refusals import BadInput, Reason, Refused, Several
from kubeletplugin.discovery import sysfs
from kubeletplugin.discovery.fields import Fields, load, no_unknown
from kubeletplugin.discovery.machinehealth import GivenHealth, health_of
from kubeletplugin.discovery.tree import Tree

_MIB = 1024 * 1024
_UUIDS = uuid.UUID("5f0c2b5e-6a0e-4d3c-9a55-3c1b6a8e7d11")
"""Namespace of the UUIDs that we make up. Any constant does; changing it renames every simulated GPU."""
_MINOR_MAX = 254
"""255 is /dev/nvidiactl."""
_NUMA_MAX = 1023
_HEX = re.compile(r"0x[0-9a-f]{4}")
_CLASS = re.compile(r"0x[0-9a-f]{6}")
_UUID = re.compile(r"[A-Za-z0-9-]{1,64}")
_CAPABILITY = re.compile(r"\d{1,3}\.\d{1,2}", re.ASCII)

_TOP = ("name", "description", "driver", "eachGpu", "gpus", "eachNic", "nics", "others", "tree")
_GPU = (
    "pci",
    "uuid",
    "minor",
    "product",
    "brand",
    "architecture",
    "computeCapability",
    "memoryMiB",
    "numa",
    "mig",
    "device",
    "health",
)
_NIC = ("pci", "kind", "vendor", "device", "numa", "net", "rdma", "physicalFunction")
_OTHER = ("pci", "class", "vendor", "device", "numa")
_INDIVIDUAL = ("pci", "uuid", "minor", "physicalFunction", "health")
"""What no two devices share."""
_NIC_CLASSES = {"ethernet": "0x020000", "infiniband": "0x020700"}
_GPU_CLASS = "0x030200"
_BRIDGE_CLASS = "0x060400"


@dataclass(frozen=True, slots=True)
class Function:
    """A PCI function as sysfs is to show it."""

    address: PciAddress
    path: str
    """Below sysfs: `devices/pci0000:50/0000:50:01.0/…/0000:53:00.0`."""
    pci_class: str
    vendor: str | None = None
    device: str | None = None
    numa_node: int | None = None
    driver: str | None = None
    net_names: tuple[str, ...] = ()
    rdma_names: tuple[str, ...] = ()
    physical_function: PciAddress | None = None


@dataclass(frozen=True, slots=True)
class MachineFile:
    """A machine file, read. GPUs and NICs are sorted by address and have their places."""

    name: str
    description: str
    driver: Driver
    gpus: tuple[Gpu, ...]
    nics: tuple[Nic, ...]
    functions: tuple[Function, ...]
    """All functions, bridges included, sorted by path: what is above comes first."""
    health: Mapping[str, GivenHealth] = field(default_factory=dict)
    """What is said of each GPU's health, by UUID."""


def read(path: Path, *, node: str) -> MachineFile:
    """Read the file; Refused with its path and every field that is wrong. `node`: see `parse`."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise Refused(
            BadInput(str(path), problem, "name a machine file such as examples/machines/hgx-h100.yaml")
        ) from error
    except UnicodeDecodeError as error:
        raise Refused(BadInput(str(path), "is not UTF-8 text", "save it as UTF-8")) from error
    return parse(text, source=str(path), node=node)


def parse(text: str, *, source: str, node: str) -> MachineFile:
    """A machine from YAML text; Refused with every field that is wrong, each as `source: field: problem`.

    GPUs without a UUID get one made of machine, node and address: the same each time, and another on each node.
    """
    wrong: list[Reason] = []
    top = Fields(load(text, source), "", source, wrong)
    no_unknown(top, _TOP)
    name = top.text("name")
    if name and not is_dns_label(name):
        top.refuse("name", f"{name!r} is no DNS label", "use lower-case letters, digits and dashes, at most 63")
    if "gpus" not in top.values:
        top.refuse("gpus", "is missing", "list the GPUs, or write gpus: [] for a machine without one")
    tree = Tree.read(top)
    functions = [Function(address, path, _BRIDGE_CLASS) for address, path in tree.bridges]
    gpus: list[Gpu] = []
    nics: list[Nic] = []
    health: dict[str, GivenHealth] = {}
    for index, item in enumerate(_each(top, "gpus", "eachGpu", _GPU)):
        function = _function(item, _GPU_CLASS, tree)
        gpu = _gpu(item, function, index, lambda address: _made_up_uuid(name, node, address))
        said = health_of(item)
        if function is not None and gpu is not None:
            functions.append(replace(function, vendor=sysfs.NVIDIA, driver="nvidia"))
            gpus.append(gpu)
            health[gpu.uuid] = said
    for item in _each(top, "nics", "eachNic", _NIC):
        function = _function(item, _NIC_CLASSES.get(item.text("kind", required=False), ""), tree)
        nic = _nic(item, function)
        if function is not None and nic is not None:
            functions.append(function)
            nics.append(nic)
    for item in _each(top, "others", None, _OTHER):
        pci_class = item.matching("class", _CLASS, "a PCI class", "0x068000", required=True)
        function = _function(item, pci_class or "", tree)
        functions.extend([function] if function is not None else [])
    _refuse_twins(top, gpus)
    tree.refuse_untaken(top)
    driver = _driver(top)
    description = top.text("description", required=False).strip()
    if wrong:
        raise Refused(wrong[0] if len(wrong) == 1 else Several(tuple(wrong)))
    return MachineFile(
        name=name,
        description=description,
        driver=driver,
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.place.address)),
        nics=tuple(sorted(nics, key=lambda nic: nic.place.address)),
        functions=tuple(sorted(functions, key=lambda function: function.path)),
        health=health,
    )


def _each(top: Fields, field: str, common: str | None, known: tuple[str, ...]) -> list[Fields]:
    """The entries of one list, what all have in common filled in."""
    items = top.mappings(field)
    for item in items:
        no_unknown(item, known)
    if common is None:
        return items
    shared = top.mapping(common, required=False)
    no_unknown(shared, tuple(name for name in known if name not in _INDIVIDUAL))
    return [item.over(shared) for item in items]


def _driver(top: Fields) -> Driver:
    driver = top.mapping("driver", required=False)
    no_unknown(driver, ("version", "cuda"))
    return Driver(driver.text("version", required=False) or None, driver.text("cuda", required=False) or None)


def _function(item: Fields, pci_class: str, tree: Tree) -> Function | None:
    """What all entries have in common; None, the reason noted, where the entry has no place."""
    address, physical = item.address("pci"), item.address("physicalFunction")
    vendor = item.matching("vendor", _HEX, "a PCI id", "0x15b3")
    device = item.matching("device", _HEX, "a PCI id", "0x1021")
    numa = item.integer("numa", 0, _NUMA_MAX)
    net, rdma = item.names("net"), item.names("rdma")
    path = tree.take(address, item) if address is not None else None
    if address is None or path is None:
        return None
    return Function(address, path, pci_class, vendor, device, numa, None, net, rdma, physical)


def _gpu(item: Fields, function: Function | None, index: int, made_up: Callable[[PciAddress], str]) -> Gpu | None:
    memory = item.integer("memoryMiB", 1, 1 << 40)
    minor = item.integer("minor", 0, _MINOR_MAX)
    given = item.matching("uuid", _UUID, "a UUID", "GPU-5f0c2b5e-6a0e-4d3c-9a55-3c1b6a8e7d11")
    facts = (
        item.text("product", required=False) or None,
        item.text("brand", required=False) or None,
        item.text("architecture", required=False) or None,
        item.matching("computeCapability", _CAPABILITY, "a compute capability", "9.0"),
        memory * _MIB if memory is not None else None,
        item.truth("mig"),
    )
    if function is None:
        return None
    return Gpu(_place(function), given or made_up(function.address), index if minor is None else minor, *facts)


def _nic(item: Fields, function: Function | None) -> Nic | None:
    kind = item.text("kind")
    if kind and kind not in _NIC_CLASSES:
        item.refuse("kind", f"{kind!r} is no kind of NIC", f"use {' or '.join(_NIC_CLASSES)}")
    if function is None:
        return None
    physical = str(function.physical_function) if function.physical_function is not None else None
    names = (function.net_names, function.rdma_names)
    return Nic(_place(function), kind, function.vendor, function.device, *names, physical)


def _place(function: Function) -> Place:
    return Place(function.address, *sysfs.chain(function.path), function.numa_node)


def _made_up_uuid(machine: str, node: str, address: PciAddress) -> str:
    return f"GPU-{uuid.uuid5(_UUIDS, f'{machine}/{node}/{address}')}"


def _refuse_twins(top: Fields, gpus: list[Gpu]) -> None:
    """One minor or UUID for two GPUs would hand out the wrong one (Case F5)."""
    for noun, values in (
        ("minor", [str(gpu.minor) for gpu in gpus]),
        ("uuid", [gpu.uuid for gpu in gpus]),
    ):
        for value in sorted({value for value in values if values.count(value) > 1}):
            top.refuse("gpus", f"two GPUs have {noun} {value}", f"give each its own {noun}")
