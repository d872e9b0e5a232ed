"""Whether the node's GPUs can be used: kernel module, sysfs, device nodes and NVML tell the same."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from api.hardware import Machine
from api.refusals import Reason, Refused
from cli.doctor.findings import Finding, failure, ok, plural, warning
from kubeletplugin.discovery import sysfs
from kubeletplugin.discovery.nvml import NvmlSource
from kubeletplugin.discovery.sysfs import NvidiaFunction

_NEEDED_NODES = ("nvidiactl", "nvidia-uvm")
_UVM_REMEDY = "nvidia-modprobe -u -c=0, or start nvidia-persistenced: many drivers make these only when somebody asks"
_BIND_REMEDY = "install the NVIDIA driver for this kernel, or load it: modprobe nvidia"


@dataclass(frozen=True, slots=True)
class Hardware:
    """What was seen of it."""

    module: str | None
    """Version of the kernel module that is loaded."""
    functions: tuple[NvidiaFunction, ...]
    """NVIDIA GPUs in sysfs."""
    unread: tuple[str, ...]
    """What of sysfs could not be read, in sentences."""
    missing_nodes: tuple[str, ...]
    nvml: Machine | Reason


def look(driver_root: Path, dev_root: Path, sysfs_root: Path, proc_root: Path) -> Hardware:
    """Look at this machine."""
    scan = sysfs.scan(sysfs_root)
    nvml: Machine | Reason
    try:
        nvml = NvmlSource(driver_root, sysfs_root, proc_root).discover()
    except Refused as refused:
        nvml = refused.reason
    return Hardware(
        module=_module(sysfs_root),
        functions=tuple(function for function in scan.gpus if not function.is_virtual),
        unread=tuple(f"{item.what}: {item.why}" for item in scan.left_out),
        missing_nodes=tuple(name for name in _NEEDED_NODES if not (dev_root / "dev" / name).exists()),
        nvml=nvml,
    )


def _module(sysfs_root: Path) -> str | None:
    try:
        return (sysfs_root / "module/nvidia/version").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def judge(seen: Hardware) -> Iterator[Finding]:
    """What is to be said of it."""
    if seen.module is None:
        yield failure("driver", "the kernel module nvidia is not loaded", _BIND_REMEDY)
    else:
        yield ok("driver", f"the kernel module nvidia {seen.module} is loaded")
    yield from _bindings(seen)
    if seen.missing_nodes and seen.module is not None:
        names = " and ".join(f"/dev/{name}" for name in seen.missing_nodes)
        yield failure("device nodes", f"no {names}: claims are refused without", _UVM_REMEDY)
    elif seen.module is not None:
        yield ok("device nodes", "those that every CUDA program opens are there")
    yield from _nvml(seen)


def _bindings(seen: Hardware) -> Iterator[Finding]:
    for sentence in seen.unread:
        yield warning("sysfs", sentence, "look at this entry below /sys/bus/pci/devices")
    if not seen.functions:
        yield failure(
            "sysfs",
            "no NVIDIA GPU is on the PCI bus",
            "run this on a GPU node; in a virtual machine, see that a GPU is passed through to it",
        )
        return
    bound = sum(function.driver == "nvidia" for function in seen.functions)
    if bound:
        yield ok("sysfs", f"{plural(bound, 'GPU')} with the driver nvidia")
    for function in seen.functions:
        address = function.place.address
        match function.driver:
            case "nvidia":
                pass
            case None:
                yield failure("sysfs", f"{address} has no driver", _BIND_REMEDY)
            case "vfio-pci":
                what = f"{address} is bound to vfio-pci: it is given to virtual machines and not published"
                yield warning("sysfs", what, "nothing need be done if that is meant; else bind it to nvidia")
            case other:
                remedy = f"keep {other} from being loaded (modprobe.d), and bind the GPU to nvidia"
                yield failure("sysfs", f"{address} is bound to {other}, not to nvidia", remedy)


def _nvml(seen: Hardware) -> Iterator[Finding]:
    if not isinstance(seen.nvml, Machine):
        yield failure("nvml", seen.nvml.what, seen.nvml.remedy)
        return
    machine = seen.nvml
    version = machine.driver.version
    if not machine.gpus:
        yield failure("nvml", "NVML lists no GPU that can be used", "see the other lines; and nvidia-smi on the node")
    else:
        yield ok("nvml", f"NVML lists {plural(len(machine.gpus), 'GPU')}, driver {version or 'unknown'}")
    if version and seen.module and version != seen.module:
        what = f"NVML is of driver {version}, the loaded kernel module of {seen.module}"
        yield failure("nvml", what, "load the module of the driver that is installed, or reboot the node")
    unlisted = {str(function.place.address) for function in seen.functions if function.driver != "nvidia"}
    for item in machine.left_out:
        if item.what not in unlisted:  # said above
            yield warning("nvml", f"{item.what} is left out: {item.why}", "see dmesg and nvidia-smi on the node")
