"""A machine drawn as the tree that its devices hang on: NUMA nodes, PCIe roots, switches, GPUs and NICs.

Root ports and the downstream ports of switches are left out: each leads to one thing, so they say nothing about distance.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from api.hardware import Gpu, Machine, Nic
from api.names import gpu_device_name
from api.pci import PciAddress, Place

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Marks:
    """What the branches are drawn with; each is as wide as the others."""

    branch: str
    last: str
    bar: str
    gap: str = "   "


LINES = Marks("├─ ", "└─ ", "│  ")
ASCII = Marks("|- ", "`- ", "|  ")


@dataclass(slots=True)
class _Branch:
    label: str
    notes: str = ""
    """What stands beside the label, in a column of its own."""
    below: list["_Branch"] = field(default_factory=list)
    switches: dict[PciAddress, "_Branch"] = field(default_factory=dict)


def lines(machine: Machine, title: str, *, marks: Marks = LINES) -> tuple[str, ...]:
    """The tree, one line for each thing, `title` on top; at its end what was left out, with the reason."""
    top = _Branch(title)
    roots = _roots(machine)
    for numa in sorted({_numa_nodes(places) for places, _ in roots.values()}, key=_numa_order):
        here = [branch for places, branch in roots.values() if _numa_nodes(places) == numa]
        top.below.append(_Branch(_numa_label(numa), below=here))
    top.below.extend(_Branch(f"left out: {item.what}", item.why) for item in machine.left_out)
    drawn = [(top.label, ""), *_drawn(top, "", marks)]
    width = max((len(label) for label, notes in drawn if notes), default=0)
    return tuple(f"{label:<{width}}  {notes}" if notes else label for label, notes in drawn)


def _roots(machine: Machine) -> Mapping[str, tuple[list[Place], _Branch]]:
    """Each root with the places of all that is below it, in the order of the devices' addresses."""
    roots: dict[str, tuple[list[Place], _Branch]] = {}
    devices: list[tuple[Place, Callable[[bool], _Branch]]] = [
        *((gpu.place, lambda show_numa, gpu=gpu: _gpu(gpu, show_numa=show_numa)) for gpu in machine.gpus),
        *((nic.place, lambda show_numa, nic=nic: _nic(nic, show_numa=show_numa)) for nic in machine.nics),
    ]
    devices.sort(key=lambda device: device[0].address)
    for place, _ in devices:
        name = place.root or ""
        label = f"PCIe root {name}" if name else "PCIe root not known"
        roots.setdefault(name, ([], _Branch(label)))[0].append(place)
    for place, branch in devices:
        places, root = roots[place.root or ""]
        _at(root, place).below.append(branch(len(_numa_nodes(places)) > 1))
    return {name: (places, _joined(root)) for name, (places, root) in roots.items()}


def _at(root: _Branch, place: Place) -> _Branch:
    """The branch that a device hangs on: its root, or the innermost switch above it."""
    at = root
    for switch in _switches(place):
        if switch not in at.switches:
            at.switches[switch] = _Branch(f"switch {switch}")
            at.below.append(at.switches[switch])
        at = at.switches[switch]
    return at


def _switches(place: Place) -> tuple[PciAddress, ...]:
    """All switches above a device, the outermost first, each named by its upstream port: below the root port, upstream and
    downstream ports take turns."""
    return (*place.bridges[1:-2:2], place.switch) if place.switch is not None else ()


def _joined(branch: _Branch) -> _Branch:
    """Without lines of their own for switches that are all there is below something."""
    below = [_joined(inner) for inner in branch.below]
    if len(below) == 1 and branch.switches:
        return _Branch(f"{branch.label}, {below[0].label}", below=below[0].below)
    return _Branch(branch.label, branch.notes, below)


def _gpu(gpu: Gpu, *, show_numa: bool) -> _Branch:
    facts = [gpu.product_name or "product not known"]
    if gpu.memory_bytes is not None:
        facts.append(f"{gpu.memory_bytes // _MIB} MiB")
    if gpu.mig_enabled:
        facts.append("MIG mode on")
    facts.extend(ailment.message for ailment in gpu.ailments[:1])
    return _Branch(f"GPU {gpu_device_name(gpu.place.address)}", _notes(gpu.place, facts, show_numa=show_numa))


def _nic(nic: Nic, *, show_numa: bool) -> _Branch:
    facts = [nic.kind, *nic.rdma_names]
    if nic.physical_function is not None:
        facts.append(f"virtual function of {nic.physical_function}")
    label = f"NIC {', '.join(nic.net_names)}" if nic.net_names else "NIC"
    return _Branch(label, _notes(nic.place, facts, show_numa=show_numa))


def _notes(place: Place, facts: list[str], *, show_numa: bool) -> str:
    numa = [f"NUMA node {'not known' if place.numa_node is None else place.numa_node}"] if show_numa else []
    return f"{place.address}  {', '.join((*facts, *numa))}"


def _numa_nodes(places: list[Place]) -> frozenset[int | None]:
    return frozenset(place.numa_node for place in places)


def _numa_order(nodes: frozenset[int | None]) -> list[int]:
    return sorted(-1 if node is None else node for node in nodes)


def _numa_label(nodes: frozenset[int | None]) -> str:
    known = [str(node) for node in sorted(node for node in nodes if node is not None)]
    if not known:
        return "NUMA node not known"
    return f"NUMA node {known[0]}" if len(nodes) == 1 else f"NUMA nodes {', '.join(known)}, each device its own"


def _drawn(branch: _Branch, prefix: str, marks: Marks) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for number, inner in enumerate(branch.below, 1):
        is_last = number == len(branch.below)
        found.append((prefix + (marks.last if is_last else marks.branch) + inner.label, inner.notes))
        found.extend(_drawn(inner, prefix + (marks.gap if is_last else marks.bar), marks))
    return found
