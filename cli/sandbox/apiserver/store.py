"""What the API server remembers: objects by resource, one counter of versions, and the log that watches read.

It knows nothing of the rules for writing (see `writes`). Objects given out are the stored ones and are never changed
in place; `put` and `get`, meant for tests, copy.
"""

from __future__ import annotations

import copy
import random
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from api.timestamps import time_text, utc_now
from cli.sandbox.apiserver.kinds import Served

Obj = dict[str, Any]

# What the API server puts behind generateName (apiserver/pkg/storage/names/generate.go): no vowels, no look-alikes.
NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
NAME_BASE_BYTES = 58


class Key(NamedTuple):
    """Where an object is kept; sorting keys gives the order of lists."""

    resource: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the log: what an object was before, and what it is now; `after` is None for a deletion.

    `last` is the object a deletion is reported with: its final state under the version of the deletion.
    """

    version: int
    key: Key
    before: Obj | None
    after: Obj | None
    last: Obj


class CompactedError(Exception):
    """Changes since this version are no longer all there."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {asked} ({oldest})")


class Store:
    """Objects and their history. Every method takes the lock; hold `lock` around reads that belong to a write."""

    def __init__(self, served: Served, now: Callable[[], datetime] = utc_now, keep_changes: int = 20_000) -> None:
        self.served = served
        self.now = now
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self._keep = keep_changes
        self._objects: dict[Key, Obj] = {}
        self._log: list[Change] = []
        self._version = 1
        self._compacted = 0

    @property
    def version(self) -> int:
        """The version of the newest change."""
        with self.lock:
            return self._version

    @property
    def oldest(self) -> int:
        """The oldest version a watch can start from."""
        with self.lock:
            return self._compacted

    def timestamp(self) -> str:
        """Now, as metadata writes it."""
        return time_text(self.now())

    def find(self, key: Key) -> Obj | None:
        """The stored object itself."""
        with self.lock:
            return self._objects.get(key)

    def under(self, resource: str, namespace: str = "") -> list[tuple[Key, Obj]]:
        """Objects of a resource, of one namespace or of all, in the order of lists."""
        with self.lock:
            return sorted(
                ((k, o) for k, o in self._objects.items() if k.resource == resource and namespace in ("", k.namespace)),
                key=lambda pair: pair[0],
            )

    def everything(self) -> list[tuple[Key, Obj]]:
        """All objects of all resources."""
        with self.lock:
            return list(self._objects.items())

    def at(self, resource: str, version: int) -> dict[Key, Obj]:
        """The objects of a resource as they were at a version; CompactedError when that is too long ago."""
        with self.lock:
            objects = dict(self.under(resource))
            for change in reversed(self.since(version)):
                if change.key.resource != resource:
                    continue
                if change.before is None:
                    objects.pop(change.key, None)
                else:
                    objects[change.key] = change.before
            return objects

    def since(self, version: int) -> list[Change]:
        """The changes after a version; CompactedError when some of them are gone."""
        with self.lock:
            if version < self._compacted:
                raise CompactedError(version, self._compacted)
            newer = self._version - version
            if newer <= 0:
                return []
            tail = self._log[-newer:] if newer < len(self._log) else self._log
            return [c for c in tail if c.version > version]

    def commit(self, key: Key, obj: Obj | None) -> Obj:
        """Keep an object, or with None forget it; gives back what a client is told, with its new version."""
        with self.changed:
            before = self._objects.get(key)
            self._version += 1
            source = obj if obj is not None else before
            if source is None:
                raise KeyError(key)
            told = {**source, "metadata": {**source["metadata"], "resourceVersion": str(self._version)}}
            if obj is None:
                del self._objects[key]
            else:
                self._objects[key] = told
            self._log.append(Change(self._version, key, before, None if obj is None else told, told))
            if len(self._log) > self._keep:
                self._forget(len(self._log) - self._keep // 2)
            self.changed.notify_all()
            return told

    def wake(self) -> None:
        """Have every watch look up from its wait."""
        with self.changed:
            self.changed.notify_all()

    def compact(self) -> None:
        """Forget the whole log: every watch that starts at an older version is told 410."""
        with self.lock:
            self._forget(len(self._log))
            self._compacted = self._version

    def _forget(self, entries: int) -> None:
        if entries > 0:
            self._compacted = max(self._compacted, self._log[entries - 1].version)
            del self._log[:entries]

    def generated_name(self, key: Key, base: str) -> str:
        """A free name after `base`, which is cut so that the whole stays a label of 63 bytes."""
        while True:
            ending = "".join(random.choices(NAME_LETTERS, k=5))  # noqa: S311 - names, not secrets
            name = base[:NAME_BASE_BYTES] + ending
            if self.find(key._replace(name=name)) is None:
                return name

    # For tests and the demo: no validation, no ownership, but a version and an event like every other write.

    def put(self, obj: Mapping[str, Any]) -> Obj:
        """Create or overwrite an object as it stands; metadata the server always gives is filled in."""
        kind = self.served.of_object(obj)
        kept = kind.kept(copy.deepcopy(dict(obj)))
        meta = kept.setdefault("metadata", {})
        if kind.namespaced:
            meta.setdefault("namespace", "default")
        key = Key(kind.storage, meta.get("namespace", ""), meta["name"])
        with self.lock:
            old = (self.find(key) or {}).get("metadata", {})
            meta.setdefault("uid", old.get("uid") or str(uuid.uuid4()))
            meta.setdefault("creationTimestamp", old.get("creationTimestamp") or self.timestamp())
            return copy.deepcopy(kind.shown(self.commit(key, kept)))

    def get(self, resource: str, name: str, namespace: str = "") -> Obj | None:
        """A copy of an object; the resource by plural, plural.group or kind."""
        kind = self.served.named(resource)
        found = self.find(self._key(resource, name, namespace))
        return None if found is None else copy.deepcopy(kind.shown(found))

    def listed(self, resource: str, namespace: str = "") -> list[Obj]:
        """Copies of all objects of a resource."""
        kind = self.served.named(resource)
        return [copy.deepcopy(kind.shown(o)) for _, o in self.under(kind.storage, namespace)]

    def remove(self, resource: str, name: str, namespace: str = "") -> None:
        """Forget an object at once, finalizers or not, and leave what it owns; KeyError when it is not there."""
        self.commit(self._key(resource, name, namespace), None)

    def _key(self, resource: str, name: str, namespace: str) -> Key:
        kind = self.served.named(resource)
        return Key(kind.storage, (namespace or "default") if kind.namespaced else "", name)
