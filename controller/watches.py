"""What the controller watches, and how little of it is kept."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from api.kube.client import Client
from api.kube.paths import LEASES, NODE_INVENTORIES, NODES, SLICES, Resource
from api.kube.reflector import Change, Reflector
from api.kube.reflector import State as WatchState
from api.names import pool_name
from controller.conflicts import ForeignSlice, foreign_slice
from controller.reconcile import Listening, lease_info
from controller.signs import LeaseInfo
from controller.state import NodeInfo, State, slim

T = TypeVar("T")
Object = dict[str, Any]


class Watches:
    """Four reflectors that feed a State."""

    def __init__(self, client: Client, state: State, *, driver: str, namespace: str) -> None:
        self._state = state
        self.inventories: Reflector[Object] = Reflector(
            client,
            NODE_INVENTORIES.path(),
            handler=_Tell(self._inventory, state.inventories_listed),
            transform=slim,
        )
        self.nodes: Reflector[NodeInfo] = Reflector(
            client, NODES.path(), handler=_Tell(self._node), transform=node_info
        )
        self.leases: Reflector[LeaseInfo] = Reflector(
            client, LEASES.path(namespace), handler=_Tell(self._lease, state.leases_listed), transform=lease_info
        )
        tell_slice: _Tell[Object | ForeignSlice] = _Tell(self._slice)
        self.slices: Reflector[Object | ForeignSlice] = Reflector(
            client, SLICES.path(), handler=tell_slice, transform=lambda obj: read_slice(obj, driver)
        )
        self._all: Mapping[Resource, Reflector[Any]] = {
            NODE_INVENTORIES: self.inventories,
            NODES: self.nodes,
            LEASES: self.leases,
            SLICES: self.slices,
        }

    def start(self) -> None:
        """Begin to watch."""
        for reflector in self._all.values():
            reflector.start()

    def stop(self) -> None:
        """End all of them."""
        for reflector in self._all.values():
            reflector.stop()

    def wait_synced(self, timeout_seconds: float) -> bool:
        """Whether all first lists are in; each is waited for that long."""
        return all(reflector.wait_synced(timeout_seconds) for reflector in self._all.values())

    def why_not_synced(self) -> str | None:
        """Which watches have not begun, or are interrupted."""
        for what, state in self.states().items():
            if not state.synced or state.last_error:
                return f"the watch on {what} is not open{': ' if state.last_error else ''}{state.last_error}"
        return None

    def states(self) -> Mapping[str, WatchState]:
        """How each is doing, by the plural of what it watches."""
        return {resource.plural: reflector.state for resource, reflector in self._all.items()}

    def listening(self) -> Listening:
        """How the watch on Leases is doing."""
        state = self.leases.state
        return Listening(deaf=bool(state.last_error), outages=state.outages)

    def _inventory(self, old: Object | None, new: Object | None) -> None:
        if new is not None:
            self._state.inventory_is(new)
        elif old is not None:
            self._state.inventory_gone(old["metadata"]["name"])

    def _node(self, old: NodeInfo | None, new: NodeInfo | None) -> None:
        if new is not None:
            self._state.node_is(new)
        elif old is not None:
            self._state.node_gone(old.name)

    def _lease(self, old: LeaseInfo | None, new: LeaseInfo | None) -> None:
        if new is not None:
            self._state.lease_is(new)
        elif old is not None:
            self._state.lease_gone(old.name)

    def _slice(self, old: Object | ForeignSlice | None, new: Object | ForeignSlice | None) -> None:
        if isinstance(old, ForeignSlice) or isinstance(new, ForeignSlice):
            before = old if isinstance(old, ForeignSlice) else None
            after = new if isinstance(new, ForeignSlice) else None
            either = after or before
            if either is not None:
                self._state.foreign_is(either.name, after, before)
        elif old is not None and (new is None or old["metadata"]["uid"] != new["metadata"]["uid"]):
            self._state.slice_gone(old)
        if isinstance(new, dict):
            self._state.slice_is(new)


class _Tell(Generic[T]):
    """A handler made of two functions; whether something is new or changed does not matter to us."""

    def __init__(self, change: Callable[[T | None, T | None], None], synced: Callable[[], None] | None = None) -> None:
        self._change = change
        self._synced = synced

    def on_change(self, change: Change, old: T | None, new: T | None) -> None:  # noqa: ARG002  # the two say it
        self._change(old, new)

    def on_synced(self) -> None:
        if self._synced is not None:
            self._synced()


def node_info(obj: Object) -> NodeInfo:
    """What matters of a Node (parsed JSON): a Node is 10 KB, and its status changes every few minutes."""
    allocatable = (obj.get("status") or {}).get("allocatable") or {}
    return NodeInfo(
        obj["metadata"]["name"],
        obj["metadata"]["uid"],
        {key: str(value) for key, value in allocatable.items() if key.startswith("nvidia.com/")},
    )


def read_slice(obj: Object, driver: str) -> Object | ForeignSlice:
    """A slice of ours in whole, to be compared and rewritten; of any other only what conflicts need.

    Ours is what has our driver's name and our naming of pools; whatever else somebody publishes under our driver's name we
    neither rewrite nor delete.
    """
    spec = obj["spec"]
    node = spec.get("nodeName")
    if spec["driver"] == driver and node and spec["pool"]["name"] == pool_name(node, driver):
        return slim(obj)
    return foreign_slice(obj)
