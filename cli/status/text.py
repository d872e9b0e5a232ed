"""The report for people: a block for each node, and what waits."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cli.columns import columns
from cli.paper import Paper
from cli.status.facts import Taint
from cli.status.report import Device, Hold, HoldingPod, NodeStatus, PluginInstance, Report, State, Waiting

_HEADS = ("DEVICE", "STATE", "NAMESPACE", "POD", "CONTAINERS", "CLAIM", "PRODUCT", "ADDRESS", "UUID")
_LEAST_WANTED = ("UUID", "PRODUCT", "ADDRESS")
"""What goes first where a terminal is narrow."""


@dataclass(frozen=True, slots=True)
class _Row:
    cells: tuple[str | None, ...]
    odd: bool
    """Whether somebody should look."""


def text(report: Report, paper: Paper) -> str:
    """All of it, without a newline at the end."""
    blocks = [_node(node, report, paper) for node in report.nodes]
    if report.waiting:
        lines = [paper.bold("WAITING"), *(line for each in report.waiting for line in _waiting(each, paper))]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks or [_nothing(report, paper)])


def _nothing(report: Report, paper: Paper) -> str:
    scope = report.scope
    if scope.pod is not None:
        return paper.fold(f"pod {scope.namespace}/{scope.pod} has no device of {report.driver} and waits for none")
    if scope.namespace is not None:
        return paper.fold(f"nobody in namespace {scope.namespace} has a device of {report.driver} or waits for one")
    if scope.node is not None:
        return paper.fold(f"node {scope.node} has no NodeInventory, and {report.driver} has no device there")
    return paper.fold(f"no node has a NodeInventory, and {report.driver} has no device in any ResourceSlice")


def _node(node: NodeStatus, report: Report, paper: Paper) -> str:
    parts = ["\n".join(_head(node, report, paper))]
    if node.devices:
        parts.append(_table(node.devices, paper, all_known=report.knows_all_pods))
        notes = "\n".join(paper.fold(note, 2) for note in _notes(node))
        if notes:
            parts.append(notes)
    if node.left_out and report.knows_all_pods:
        parts.append("\n".join(paper.fold(f"left out: {item.what}: {item.why}", 2) for item in node.left_out))
    return "\n\n".join(parts)


def _head(node: NodeStatus, report: Report, paper: Paper) -> Iterator[str]:
    yield paper.bold(paper.fold(f"{node.name}: {_counts(node)}" if report.knows_all_pods else node.name))
    if node.problem:
        yield paper.yellow(paper.fold(node.problem, 2))
    if not node.exists:
        yield paper.yellow(paper.fold("there is no Node of this name", 2))
    elif node.ready is not True:
        yield paper.yellow(paper.fold("the Node is not ready" if node.ready is False else "the kubelet is silent", 2))
    if node.cordoned:
        yield paper.yellow(paper.fold("the Node is cordoned: it gets no new pods", 2))
    if node.driver:
        made_up = " (simulated)" if node.simulated else ""
        yield paper.fold(f"driver {node.driver}, CUDA {node.cuda or 'unknown'}{made_up}", 2)
    for condition in node.conditions:
        line = paper.fold(f"{condition.type}: {condition.status}, {condition.message}", 2)
        yield line if condition.status == "True" else paper.yellow(line)
    for instance in node.instances:
        line = paper.fold(_instance(instance), 2)
        yield line if instance.registered and instance.fresh else paper.yellow(line)
    if not node.instances and not node.problem:
        yield paper.yellow(paper.fold("no plugin instance is there", 2))


def _counts(node: NodeStatus) -> str:
    counts = Counter(device.state for device in node.devices)
    gpus = f"{len(node.devices)} GPU{'' if len(node.devices) == 1 else 's'}"
    told = ", ".join(f"{counts[state]} {state.value}" for state in State if counts[state])
    in_use_and_tainted = node.tainted - counts[State.TAINTED]
    more = f" ({in_use_and_tainted} of them tainted)" if in_use_and_tainted and not counts[State.TAINTED] else ""
    return f"{gpus}: {told}{more}" if told else "no GPU"


def _instance(instance: PluginInstance) -> str:
    registered = "registered" if instance.registered else "not registered"
    lease = "Lease fresh"
    if not instance.fresh:
        lease = f"Lease silent since {instance.renewed_at}" if instance.renewed_at else "no Lease of this node's"
    return f"plugin {instance.version or 'of unknown version'}, instance {instance.id}: {registered}, {lease}"


def _table(devices: Iterable[Device], paper: Paper, *, all_known: bool) -> str:
    rows = [row for device in devices for row in _rows(device, all_known=all_known)]
    heads = list(_HEADS)
    dropped: list[str] = []
    while True:
        shown = [_HEADS.index(head) for head in heads]
        lines = columns(heads, ([row.cells[at] for at in shown] for row in rows)).split("\n")
        left = [head for head in _LEAST_WANTED if head in heads]
        if paper.width is None or max(map(len, lines)) + 2 <= paper.width or not left:
            break
        dropped.append(left[0])
        heads.remove(left[0])
    told = [
        f"  {lines[0]}",
        *(f"  {paper.yellow(line) if row.odd else line}" for line, row in zip(lines[1:], rows, strict=True)),
    ]
    if dropped:
        told.append(paper.fold(f"({', '.join(dropped)} left out for want of width; -o json has all)", 2))
    return "\n".join(told)


def _rows(device: Device, *, all_known: bool) -> Iterator[_Row]:
    state = device.state.value
    if device.state is State.IN_USE:
        state += ", tainted" if device.tainted else ""
        state += "" if device.published else ", unpublished"
    odd = device.tainted or not device.published
    holders = [(hold, pod, state) for hold in device.holds for pod in (hold.pods or (None,))]
    watchers = [(hold, pod, "admin access") for hold in device.admin for pod in (hold.pods or (None,))]
    free: list[tuple[Hold | None, HoldingPod | None, str]] = [] if holders or not all_known else [(None, None, state)]
    for hold, pod, word in (*free, *holders, *watchers):
        yield _Row(_cells(device, hold, pod, word), odd or _is_odd(hold, pod))


def _is_odd(hold: Hold | None, pod: HoldingPod | None) -> bool:
    """Whether a device is held and nothing that runs uses it."""
    if hold is None:
        return False
    return not hold.others if pod is None else pod.state == "Gone"


def _cells(device: Device, hold: Hold | None, pod: HoldingPod | None, state: str) -> tuple[str | None, ...]:
    name = None
    if pod is not None:
        name = pod.name if pod.state == "Running" else f"{pod.name} ({pod.state})"
    claim = None
    if hold is not None:
        claim = f"{hold.claim} (deleting)" if hold.deleting else hold.claim
    return (
        device.name,
        state,
        hold.namespace if hold is not None else None,
        name,
        ",".join(pod.containers) or None if pod is not None else None,
        claim,
        device.product,
        device.address,
        device.uuid,
    )


def _notes(node: NodeStatus) -> Iterator[str]:
    """Taints with what ails the device; a taint that all devices have is said once."""
    common: Sequence[Taint] = ()
    if len(node.devices) > 1:
        common = [taint for taint in node.devices[0].taints if all(_has(device, taint) for device in node.devices)]
    for taint in common:
        yield f"all devices: {_taint(taint)}"
    for device in node.devices:
        own = [_taint(taint) for taint in device.taints if not any(_same(taint, each) for each in common)]
        told = [*own, *device.ailments]
        if told:
            yield f"{device.name}: {'; '.join(told)}"


def _has(device: Device, taint: Taint) -> bool:
    return any(_same(taint, other) for other in device.taints)


def _same(one: Taint, other: Taint) -> bool:
    """But for the second in which each began."""
    return (one.text, one.rule) == (other.text, other.rule)


def _taint(taint: Taint) -> str:
    since = f" since {taint.since}" if taint.since else ""
    rule = f" by DeviceTaintRule {taint.rule}" if taint.rule else ""
    return f"{taint.text}{since}{rule}"


def _waiting(waiting: Waiting, paper: Paper) -> Iterator[str]:
    asks = ", ".join(waiting.asks)
    what = (
        f"claim {waiting.namespace}/{waiting.claim}"
        if waiting.claim
        else f"pod {waiting.namespace}/{waiting.pods[0].name}"
    )
    if not waiting.pods:
        yield paper.fold(f"{what} ({asks}): no pod uses it yet", 2)
    for pod in waiting.pods:
        who = f"pod {pod.name}: " if waiting.claim else ""
        yield paper.fold(f"{what} ({asks}): {who}{pod.why or 'the scheduler has said nothing yet'}", 2)
