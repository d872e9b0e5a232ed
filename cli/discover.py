"""`lanewise discover`: what the node plugin would find on this machine, or on one that a machine file describes."""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from api.hardware import Gpu, Machine, Nic
from api.inventory import Owner, encode_spec
from api.names import gpu_device_name
from cli import tree
from cli.columns import columns
from kubeletplugin.discovery.nvml import NvmlSource
from kubeletplugin.discovery.simulated import SimulatedSource

_MIB = 1024 * 1024


def add(subparsers: Any) -> None:
    """Add the subcommand to `argparse`'s subparsers."""
    sub = subparsers.add_parser(
        "discover",
        help="show what the node plugin would find",
        description="Show the GPUs and NICs of this machine, where they sit, and what was left out and why.",
    )
    sub.add_argument("--machine", type=Path, metavar="FILE", help="look at the machine that this file describes")
    sub.add_argument("--node", default="this-node", help="node name that UUIDs of a described machine are made with")
    sub.add_argument(
        "--driver-root", type=Path, default=Path("/"), help="root of the NVIDIA driver's files (default /)"
    )
    sub.add_argument("--sysfs-root", type=Path, default=Path("/sys"), help="sysfs (default /sys)")
    sub.add_argument("--proc-root", type=Path, default=Path("/proc"), help="procfs (default /proc)")
    sub.add_argument(
        "-o", "--output", choices=("table", "tree", "json"), default="table", help="json is a NodeInventory's spec"
    )
    sub.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the machine. Refused when there is none to be found."""
    machine = _discover(arguments)
    if arguments.output == "json":
        print(json.dumps(encode_spec(Owner(arguments.node, ""), machine)["spec"], indent=2))
    elif arguments.output == "tree":
        print("\n".join(tree.lines(machine, _driver(machine))))
    else:
        print(table(machine))
    return 0


def _discover(arguments: argparse.Namespace) -> Machine:
    if arguments.machine is None:
        return NvmlSource(arguments.driver_root, arguments.sysfs_root, arguments.proc_root).discover()
    with tempfile.TemporaryDirectory(prefix="lanewise-") as root:
        return SimulatedSource(arguments.machine, Path(root), arguments.node, nodes="plain").discover()


def table(machine: Machine) -> str:
    """The machine for people, each part a table."""
    parts = [_driver(machine)]
    gpu_heads = ("GPU", "PRODUCT", "MEMORY", "MIG", "MINOR", "ROOT", "SWITCH", "NUMA", "UUID")
    parts.append(columns(gpu_heads, map(_gpu_row, machine.gpus)) if machine.gpus else "no GPU")
    if machine.nics:
        nic_heads = ("NIC", "KIND", "NAMES", "ROOT", "SWITCH", "NUMA", "VIRTUAL OF")
        parts.append(columns(nic_heads, map(_nic_row, machine.nics)))
    if machine.left_out:
        parts.append(columns(("LEFT OUT", "WHY"), ((item.what, item.why) for item in machine.left_out)))
    return "\n\n".join(parts)


def _driver(machine: Machine) -> str:
    driver = f"driver {machine.driver.version or 'unknown'}, CUDA {machine.driver.cuda_version or 'unknown'}"
    return f"{driver}{' (simulated)' if machine.simulated else ''}"


def _gpu_row(gpu: Gpu) -> Sequence[object]:
    memory = f"{gpu.memory_bytes // _MIB} MiB" if gpu.memory_bytes is not None else None
    mig = {True: "on", False: "off", None: None}[gpu.mig_enabled]
    place = gpu.place
    name = gpu_device_name(place.address)
    return name, gpu.product_name, memory, mig, gpu.minor, place.root, place.switch, place.numa_node, gpu.uuid


def _nic_row(nic: Nic) -> Sequence[object]:
    names = ",".join((*nic.net_names, *nic.rdma_names)) or None
    place = nic.place
    return place.address, nic.kind, names, place.root, place.switch, place.numa_node, nic.physical_function
