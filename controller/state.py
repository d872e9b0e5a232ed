"""What the controller has seen of the cluster, by node, behind one lock.

Fed by the reflectors of `controller.watches` and by the answers to our own writes; asked by `controller.reconcile`. What is a
sign of life is `controller.signs`, whose deletion it was is `controller.ours`; nothing is decided here.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from api.inventory import Instance, Inventory, decode
from api.refusals import Refused
from controller.conflicts import ForeignSlice
from controller.decide import Facts
from controller.liveness import NodeSigns
from controller.ours import OwnSlices, newer, node_of
from controller.pool import Pool, devices_of
from controller.signs import LeaseInfo, LifeSigns

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What matters of a Node object."""

    name: str
    uid: str
    allocatable: Mapping[str, str] = field(default_factory=dict)
    """`nvidia.com/*` only."""


@dataclass(frozen=True, slots=True)
class _Reported:
    """A NodeInventory, read."""

    obj: Object
    inventory: Inventory | None
    fault: str
    pool: Pool

    @property
    def instances(self) -> tuple[Instance, ...]:
        return self.inventory.instances if self.inventory is not None else ()


class State:
    """Everything seen; `wake` is called with the name of each node that something happened to, outside the lock."""

    def __init__(self, wake: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._wake = wake
        self._clock = clock
        self._lock = threading.Lock()
        self._reported: dict[str, _Reported] = {}
        self._nodes: dict[str, NodeInfo] = {}
        self._foreign: dict[str | None, dict[str, ForeignSlice]] = {}
        self._signs = LifeSigns(clock)
        self._ours = OwnSlices(clock)
        self._settled: set[str] = set()

    # What the reflectors tell.

    def inventories_listed(self) -> None:
        """The first list of inventories is in."""
        with self._lock:
            self._signs.inventories_listed = True

    def leases_listed(self) -> None:
        """The first list of Leases is in."""
        with self._lock:
            self._signs.leases_listed = True

    def inventory_is(self, obj: Object) -> None:
        """A NodeInventory, as the reflector shows it. The newest version stays."""
        self._inventory_is(obj, answered=False)

    def inventory_gone(self, name: str) -> None:
        """A NodeInventory was deleted."""
        with self._lock:
            old = self._reported.pop(name, None)
            if old is not None:
                self._signs.instances_are(name, old.instances, ())
        self._wake(name)

    def node_is(self, node: NodeInfo) -> None:
        """A Node as it matters."""
        with self._lock:
            concerns = self._nodes.get(node.name) != node and self._concerns(node.name)
            self._nodes[node.name] = node
        if concerns:
            self._wake(node.name)

    def node_gone(self, name: str) -> None:
        """A Node was deleted."""
        with self._lock:
            self._nodes.pop(name, None)
            concerns = self._concerns(name)
        if concerns:
            self._wake(name)

    def lease_is(self, lease: LeaseInfo) -> bool:
        """A Lease of the plugins' namespace; whether it was renewed since it was last seen."""
        with self._lock:
            renewed = self._signs.lease_is(lease)
            node = self._signs.node_of(lease.name)
            # A published node need not be looked at every ten seconds for saying that all is well.
            if node in self._settled:
                node = None
        if renewed and node is not None:
            self._wake(node)
        return renewed

    def lease_gone(self, name: str) -> None:
        """A Lease was deleted."""
        with self._lock:
            node = self._signs.node_of(name)
            self._signs.lease_gone(name)
        if node is not None:
            self._wake(node)

    def foreign_is(self, name: str, slice_: ForeignSlice | None, old: ForeignSlice | None) -> None:
        """A slice of another driver appeared, changed or (None) went."""
        with self._lock:
            if old is not None:
                self._foreign.get(old.node, {}).pop(name, None)
            if slice_ is not None:
                self._foreign.setdefault(slice_.node, {})[name] = slice_
            touched = {part.node for part in (slice_, old) if part is not None}
            nodes = {node for node in touched if node is not None and self._concerns(node)}
            if None in touched:
                nodes |= set(self._reported)
        for node in nodes:
            self._wake(node)

    def slice_is(self, obj: Object) -> None:
        """A slice of ours, as the reflector shows it."""
        with self._lock:
            news = self._ours.seen(obj)
        if news:
            self._wake(node_of(obj))

    def slice_gone(self, obj: Object) -> None:
        """A slice of ours was deleted; if by somebody else, the node's stay away until a newer sign of life."""
        with self._lock:
            self._ours.gone(obj)
            if self._ours.wiped_at(node_of(obj)) is not None:
                self._settled.discard(node_of(obj))
        self._wake(node_of(obj))

    # What the reconciler tells.

    def inventory_written(self, obj: Object) -> None:
        """A NodeInventory as the server answered our write; nothing of one that is gone by now."""
        self._inventory_is(obj, answered=True)

    def written(self, obj: Object) -> None:
        """A slice of ours as the server answered our write."""
        with self._lock:
            self._ours.written(obj)

    def deleting(self, uid: str) -> None:
        """We are about to delete this slice."""
        with self._lock:
            self._ours.deleting(uid)

    def not_deleted(self, uid: str) -> None:
        """It did not come to that, as far as we know."""
        with self._lock:
            self._ours.not_deleted(uid)

    def deleted(self, obj: Object) -> None:
        """We have deleted it, or it was gone already."""
        with self._lock:
            self._ours.deleted(obj)

    def republished(self, node: str, wiped_at: float | None) -> None:
        """The deletion by others seen at that moment has been answered; a later one has not."""
        with self._lock:
            self._ours.republished(node, wiped_at)

    def settle(self, node: str, *, settled: bool) -> None:
        """Whether the node is published and only silence can change that, so that renewals need not wake anybody."""
        with self._lock:
            (self._settled.add if settled else self._settled.discard)(node)

    def listen(self, *, deaf: bool, outages: int) -> None:
        """How the watch on Leases is doing; see `LifeSigns.listen`."""
        with self._lock:
            self._signs.listen(deaf=deaf, outages=outages)

    # What the reconciler asks.

    def facts(self, node: str) -> Facts:
        """All that is known of one node."""
        with self._lock:
            info, reported = self._nodes.get(node), self._reported.get(node)
            return Facts(
                node=node,
                node_uid=info.uid if info else None,
                inventory=reported.inventory if reported else None,
                pool=reported.pool if reported else Pool(),
                fault=reported.fault if reported else "",
                allocatable=info.allocatable if info else None,
                foreign=(*self._foreign.get(node, {}).values(), *self._foreign.get(None, {}).values()),
                signs=NodeSigns(
                    instances=self._signs.of(node, reported.instances if reported else ()),
                    slices_exist=bool(self._ours.of(node)),
                    wiped_at=self._ours.wiped_at(node),
                ),
            )

    def slices(self, node: str) -> tuple[Object, ...]:
        """Our slices of the node."""
        with self._lock:
            return self._ours.of(node)

    def unseen(self, node: str, before: float) -> tuple[Object, ...]:
        """Slices that we wrote before that moment and no watch has shown since."""
        with self._lock:
            return self._ours.unseen(node, before)

    def long_silent(self, node: str, before: float) -> tuple[Instance, ...]:
        """Plugin instances of which nothing was heard since that moment."""
        with self._lock:
            reported = self._reported.get(node)
            return self._signs.long_silent(node, reported.instances if reported else (), before)

    def silences(self) -> dict[str, float]:
        """By node, the seconds since anything was heard of its plugin; nothing of nodes where no instance is listed."""
        now = self._clock()
        with self._lock:
            return {
                node: now - max(sign.heard_at for sign in self._signs.of(node, reported.instances))
                for node, reported in self._reported.items()
                if reported.instances
            }

    def lease_holder(self, name: str) -> str | None:
        """Which node's the Lease is, by what it says itself; None for one that was not seen."""
        with self._lock:
            return self._signs.holder(name)

    def inventory_object(self, node: str) -> Object | None:
        """The NodeInventory as stored."""
        with self._lock:
            reported = self._reported.get(node)
            return reported.obj if reported else None

    def _inventory_is(self, obj: Object, *, answered: bool) -> None:
        name = str(obj["metadata"]["name"])
        with self._lock:
            old = self._reported.get(name)
            same = old is not None and old.obj["metadata"].get("uid") == obj["metadata"].get("uid")
            if (answered and not same) or (old is not None and same and not newer(obj, old.obj)):
                return
            reported = _read(obj, old)
            self._signs.instances_are(name, old.instances if old else (), reported.instances)
            self._reported[name] = reported
        self._wake(name)

    def _concerns(self, node: str) -> bool:
        """Whether there is anything to do for it: most nodes of a cluster may have no GPU."""
        return node in self._reported or bool(self._ours.of(node))


def slim(obj: Object) -> Object:
    """The object without who wrote which field, half of its size."""
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key != "managedFields"}}


def _read(obj: Object, old: _Reported | None) -> _Reported:
    try:
        inventory = decode(obj)
    except Refused as refused:
        return _Reported(obj, None, str(refused), Pool())
    known = old is not None and old.inventory is not None and old.inventory.machine == inventory.machine
    return _Reported(obj, inventory, "", old.pool if known and old is not None else devices_of(inventory.machine))
