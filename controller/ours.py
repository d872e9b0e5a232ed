"""The slices of our driver, as watch and answers show them, and who deleted them. `controller.state` has the lock."""

import time
from collections.abc import Callable
from typing import Any

Object = dict[str, Any]

DELETIONS = 4096
"""How many deletions are remembered, so that a late answer does not bring a deleted slice back."""


class OwnSlices:
    """By node and UID. A slice that somebody else deletes is a wipe of its node, until that is answered."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._slices: dict[str, dict[str, Object]] = {}
        self._unseen: dict[str, float] = {}
        self._deleted: dict[str, None] = {}
        self._wiped_at: dict[str, float] = {}

    def seen(self, obj: Object) -> bool:
        """The watch shows a slice; whether that is news. The newest version stays."""
        self._unseen.pop(obj["metadata"]["uid"], None)
        return self._put(obj)

    def written(self, obj: Object) -> None:
        """The server's answer to our own write: known now, though the watch will show it only later."""
        if self._put(obj):
            self._unseen[obj["metadata"]["uid"]] = self._clock()

    def gone(self, obj: Object) -> None:
        """A slice is no more: by our own doing, or else its node was wiped. Once for each slice, however often it is told."""
        self._take(obj)
        uid = obj["metadata"]["uid"]
        if uid not in self._deleted:
            self._remember(uid)
            self._wiped_at[node_of(obj)] = self._clock()

    def deleting(self, uid: str) -> None:
        """We are about to delete it: said before, because the watch may be faster than the answer."""
        self._remember(uid)

    def not_deleted(self, uid: str) -> None:
        """It did not come to that, as far as we know: the slice may change again, and somebody else may delete it."""
        self._deleted.pop(uid, None)

    def deleted(self, obj: Object) -> None:
        """We have deleted it, or it was gone already."""
        self._take(obj)

    def republished(self, node: str, wiped_at: float | None) -> None:
        """The wipe of that moment has been answered; a later one has not."""
        if wiped_at is not None and self._wiped_at.get(node) == wiped_at:
            del self._wiped_at[node]

    def wiped_at(self, node: str) -> float | None:
        """When the node was wiped, None if that was answered or never happened."""
        return self._wiped_at.get(node)

    def of(self, node: str) -> tuple[Object, ...]:
        """The slices of a node."""
        return tuple(self._slices.get(node, {}).values())

    def unseen(self, node: str, before: float) -> tuple[Object, ...]:
        """Slices written before that moment which no watch has shown since: they may be gone again."""
        return tuple(obj for uid, obj in self._slices.get(node, {}).items() if self._unseen.get(uid, before) < before)

    def nodes(self) -> frozenset[str]:
        """Nodes that have any."""
        return frozenset(self._slices)

    def _put(self, obj: Object) -> bool:
        uid = obj["metadata"]["uid"]
        known = self._slices.get(node_of(obj), {}).get(uid)
        if uid in self._deleted or (known is not None and not newer(obj, known)):
            return False
        self._slices.setdefault(node_of(obj), {})[uid] = obj
        return True

    def _take(self, obj: Object) -> None:
        node, uid = node_of(obj), obj["metadata"]["uid"]
        self._unseen.pop(uid, None)
        slices = self._slices.get(node, {})
        slices.pop(uid, None)
        if not slices:
            self._slices.pop(node, None)

    def _remember(self, uid: str) -> None:
        """That a slice is gone, or about to be."""
        self._deleted[uid] = None
        while len(self._deleted) > DELETIONS:
            del self._deleted[next(iter(self._deleted))]


def node_of(obj: Object) -> str:
    """The node that a slice is for, "" where it is for none."""
    return str(obj["spec"].get("nodeName") or "")


def newer(obj: Object, known: Object) -> bool:
    """Whether an object is a later version than another state of it.

    Versions of one object grow (Kubernetes API concepts, since 1.35 in so many words).
    """
    return _version(obj) > _version(known)


def _version(obj: Object) -> int:
    text = str(obj["metadata"].get("resourceVersion") or "0")
    return int(text) if text.isdigit() else 0
