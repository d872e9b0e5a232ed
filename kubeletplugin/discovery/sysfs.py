"""What sysfs says of the PCI functions that concern us.

Reads only, below roots that are parameters, so a rendered tree and a real node go through the same code. What NVML adds is
`kubeletplugin.discovery.nvml`. Layout: Documentation/PCI/sysfs-pci.rst of the Linux kernel.
"""

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from api.hardware import LeftOut, Nic
from api.pci import PciAddress, Place

NVIDIA = "0x10de"
_DISPLAY = 0x03
_NIC_KINDS = {0x0200: "ethernet", 0x0207: "infiniband"}
"""PCI class and subclass. InfiniBand cards in Ethernet mode are 0x0200 too, as are AWS's EFA devices."""
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class NvidiaFunction:
    """A display function of NVIDIA's, whether a driver has it or not."""

    place: Place
    driver: str | None
    """The kernel driver bound to it: `nvidia`, `vfio-pci`, `nouveau`; None where there is none."""
    is_virtual: bool = False
    """A virtual function of a GPU on this very machine: it belongs to a hypervisor's vGPU, not to us."""


@dataclass(frozen=True, slots=True)
class Scan:
    """The functions found, sorted by address, with what could not be read."""

    gpus: tuple[NvidiaFunction, ...] = ()
    nics: tuple[Nic, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


def scan(sysfs_root: Path) -> Scan:
    """Look at every PCI function once. A function that cannot be read is left out and said; nothing is raised.

    NICs without a PCI address (paravirtual ones, such as Azure's eth0) are not among PCI's functions and so not here.
    """
    listing = sysfs_root / "bus/pci/devices"
    try:
        names = sorted(entry.name for entry in listing.iterdir())
    except OSError as error:
        return Scan(left_out=(LeftOut("sysfs", f"{listing} cannot be read: {error.strerror}"),))
    gpus: list[NvidiaFunction] = []
    nics: list[Nic] = []
    left_out: list[LeftOut] = []
    for name in names:
        try:
            match _read_function(listing / name):
                case NvidiaFunction() as gpu:
                    gpus.append(gpu)
                case Nic() as nic:
                    nics.append(nic)
                case None:
                    pass
        except (OSError, ValueError) as error:
            left_out.append(LeftOut(name, f"sysfs does not make sense: {error}"))
    return Scan(
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.place.address)),
        nics=tuple(sorted(nics, key=lambda nic: nic.place.address)),
        left_out=tuple(left_out),
    )


def place(sysfs_root: Path, address: PciAddress) -> Place | None:
    """Where the function sits; None when sysfs has no such function."""
    entry = sysfs_root / "bus/pci/devices" / str(address)
    return _place(entry, address) if entry.exists() else None


def boot_id(proc_root: Path) -> str:
    """What the kernel made up at this boot; empty where proc does not say."""
    return _text(proc_root / "sys/kernel/random/boot_id") or ""


def chain(path: str) -> tuple[str | None, bool, tuple[PciAddress, ...]]:
    """Root complex, whether it stands directly below `devices/`, and the bridges, from a function's path.

    `path` is relative to sysfs: `devices/pci0000:15/0000:15:01.0/0000:16:00.0`. The root is looked for anywhere, because
    Hyper-V puts it below LNXSYSTM:00/…/VMBUS:00/<guid> (Case C1), and never derived from a bus number: the root of
    0000:27:00.2 can be pci0000:26. Where two components look like a root (Intel VMD nests a domain in a function of
    another) the outer one counts, as in upstream's helper.
    """
    parts = path.strip("/").split("/")
    root = next((index for index, part in enumerate(parts) if _ROOT.fullmatch(part)), None)
    if root is None:
        return None, False, ()
    bridges = []
    for part in parts[root + 1 : -1]:
        with contextlib.suppress(ValueError):
            bridges.append(PciAddress.parse(part))
    return parts[root], root == 1 and parts[0] == "devices", tuple(bridges)


def _read_function(entry: Path) -> NvidiaFunction | Nic | None:
    pci_class = int(_text(entry / "class") or "", 16) >> 8
    kind = _NIC_KINDS.get(pci_class)
    if kind is None and pci_class >> 8 != _DISPLAY:
        return None
    vendor = _text(entry / "vendor")
    physical = _link(entry / "physfn")
    if kind is not None:
        return Nic(
            place=_place(entry, PciAddress.parse(entry.name)),
            kind=kind,
            vendor=vendor,
            device=_text(entry / "device"),
            net_names=_names(entry / "net"),
            rdma_names=_names(entry / "infiniband"),
            physical_function=str(PciAddress.parse(physical)) if physical else None,
        )
    if vendor != NVIDIA:
        return None
    where = _place(entry, PciAddress.parse(entry.name))
    return NvidiaFunction(where, driver=_link(entry / "driver"), is_virtual=physical is not None)


def _place(entry: Path, address: PciAddress) -> Place:
    sysfs_root = entry.parents[3]
    real = os.path.relpath(os.path.realpath(entry), os.path.realpath(sysfs_root))
    root, is_standard, bridges = chain(real)
    try:
        numa = int(_text(entry / "numa_node") or "-1")
    except ValueError:
        numa = -1
    # -1 is the kernel's "no node known". NVML's own nvmlDeviceGetNumaNodeId is never asked: on GB200 it names the memory
    # node of the GPU, which no NIC shares (Case C7).
    return Place(address, root, is_standard, bridges, numa if numa >= 0 else None)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return None


def _link(path: Path) -> str | None:
    try:
        return path.readlink().name
    except OSError:
        return None


def _names(directory: Path) -> tuple[str, ...]:
    try:
        return tuple(sorted(entry.name for entry in directory.iterdir()))
    except OSError:
        return ()
