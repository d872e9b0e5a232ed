"""What the controller measures.

Only the replica that leads has something to tell of nodes and watches; the other one says that it does not lead. Labels are
the cluster's GPU nodes and words of ours.
"""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from api.kube.reflector import State as WatchState
from api.metrics import COMMON, Family, Reading, Registry
from controller.decide import Decision

LEADER = Family("lanewise_leader", "gauge", "1 in the replica that leads, 0 in the others.")
NODE_PUBLISHED = Family(
    "lanewise_node_published",
    "gauge",
    "The condition Published of a node's inventory and its reason: 1 while pods can be put on its GPUs, else 0.",
    ("node", "reason"),
)
NODE_DEVICES = Family(
    "lanewise_node_devices",
    "gauge",
    "Devices of a node by state: allocatable and tainted ones are in its ResourceSlices, those left out are not.",
    ("node", "state"),
)
INVENTORY_AGE = Family(
    "lanewise_inventory_age_seconds",
    "gauge",
    "Since the last sign of life of a node's plugin, by the controller's clock; unknown while nobody could listen.",
    ("node",),
)
SLICES_WRITTEN = Family(
    "lanewise_slices_written_total", "counter", "ResourceSlices written: create, update, delete.", ("verb",)
)
RECONCILE_SECONDS = Family(
    "lanewise_reconcile_seconds",
    "histogram",
    "How long passes over one node took, by outcome: done or failed.",
    ("outcome",),
)
WATCH_OPEN = Family("lanewise_watch_open", "gauge", "1 while the watch on this resource is open.", ("resource",))
WATCH_RESTARTS = Family(
    "lanewise_watch_restarts_total",
    "counter",
    "Lists and watches that failed and were begun anew; those that ended as they should do not count.",
    ("resource",),
)

FAMILIES = (
    *COMMON,
    LEADER,
    NODE_PUBLISHED,
    NODE_DEVICES,
    INVENTORY_AGE,
    SLICES_WRITTEN,
    RECONCILE_SECONDS,
    WATCH_OPEN,
    WATCH_RESTARTS,
)
"""All of them; docs, dashboard and alerts are held against this."""


class Term(Protocol):
    """What is asked of the controller while it leads."""

    def watched(self) -> Mapping[str, WatchState]: ...

    def silences(self) -> Mapping[str, float]: ...


@dataclass(frozen=True, slots=True)
class _Node:
    reason: str
    published: bool
    allocatable: int
    tainted: int
    left_out: int


class Metrics:
    """An Observer of the reconciler. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._term: Term | None = None
        self._nodes: dict[str, _Node] = {}
        self._registry = registry = Registry("controller", FAMILIES, self._read)
        written, passes = registry.counter(SLICES_WRITTEN), registry.histogram(RECONCILE_SECONDS)
        self._written = {verb: written.labels(verb) for verb in ("create", "update", "delete")}
        self._done, self._failed = passes.labels("done"), passes.labels("failed")
        registry.open()
        self.requested = registry.requested
        self.page = registry.page

    def begin(self, term: Term) -> None:
        """This process leads now."""
        with self._lock:
            self._term, self._nodes = term, {}

    def end(self) -> None:
        """It does so no more: another knows better how the nodes are."""
        with self._lock:
            self._term, self._nodes = None, {}

    def wrote(self, verb: str) -> None:
        """A slice."""
        self._written[verb].inc()

    def passed(self, seconds: float, *, failed: bool) -> None:
        """A pass over one node has ended."""
        (self._failed if failed else self._done).observe(seconds)

    def decided(self, node: str, decision: Decision, left_out: int) -> None:
        """What a node's slices now are. A node of which nothing is reported and nothing is published is forgotten."""
        devices = [device for spec in decision.slices or () for device in spec.get("devices", ())]
        tainted = sum(bool(device.get("taints")) for device in devices)
        now = _Node(decision.reason, decision.published, len(devices) - tainted, tainted, left_out)
        with self._lock:
            if decision.reason == "NoInventory":
                self._nodes.pop(node, None)
            else:
                self._nodes[node] = now

    def _read(self) -> Iterator[Reading]:
        with self._lock:
            term, nodes = self._term, dict(self._nodes)
        yield LEADER, (), float(term is not None)
        if term is None:
            return
        for name, node in nodes.items():
            yield NODE_PUBLISHED, (name, node.reason), float(node.published)
            for state in ("allocatable", "tainted", "left_out"):
                yield NODE_DEVICES, (name, state), getattr(node, state)
        for name, seconds in term.silences().items():
            yield INVENTORY_AGE, (name,), seconds
        for resource, state_of_watch in term.watched().items():
            yield WATCH_OPEN, (resource,), float(state_of_watch.synced and not state_of_watch.last_error)
            yield WATCH_RESTARTS, (resource,), state_of_watch.outages
