"""How objects go: grace, finalizers, what they own, and namespaces with all they hold.

The garbage collector and the namespace controller of a real cluster work a moment later; here both have finished when
the delete request is answered. Foreground deletion is treated as background deletion.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from api.timestamps import time_text
from cli.sandbox.apiserver.kinds import Kind, Served
from cli.sandbox.apiserver.statuses import conflict, not_found
from cli.sandbox.apiserver.store import Key, Obj, Store

POD_GRACE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Removal:
    """The result of a delete: the object as last seen, and whether it is gone or waits for its finalizers."""

    obj: Obj
    gone: bool


class Deletion:
    """Deletes on a store."""

    def __init__(self, store: Store, served: Served) -> None:
        self._store = store
        self._served = served

    def delete(self, kind: Kind, key: Key, options: Mapping[str, Any], *, dry_run: bool = False) -> Removal:
        """Delete one object; ApiError 404 when there is none and 409 when a precondition names another one."""
        with self._store.lock:
            obj = self._store.find(key)
            if obj is None:
                raise not_found(kind, key.name)
            _check_preconditions(kind, obj, options.get("preconditions") or {})
            if dry_run:
                return Removal(obj, gone=True)
            if options.get("propagationPolicy") == "Orphan" or options.get("orphanDependents"):
                self._orphan(obj["metadata"]["uid"])
            grace = _grace_seconds(kind, obj, options)
            if kind.plural == "namespaces" and not kind.group:
                return self._delete_namespace(key, obj)
            if grace or obj["metadata"].get("finalizers"):
                return Removal(self._mark(key, obj, grace), gone=False)
            return Removal(self.forget(key), gone=True)

    def forget(self, key: Key) -> Obj:
        """Remove an object at once, and after it what it owned and what waited for it."""
        with self._store.lock:
            last = self._store.commit(key, None)
            if key.resource == "customresourcedefinitions.apiextensions.k8s.io":
                for other, _ in self._store.under(key.name):
                    self._store.commit(other, None)
                self._served.remove(key.name)
            self.collect(frozenset({last["metadata"]["uid"]}))
            if key.namespace:
                self._finish_namespace(key.namespace)
            return last

    def collect(self, owners: frozenset[str] | None = None) -> list[Key]:
        """Delete objects whose owners are all gone; of all objects, or of those that one of `owners` owned."""
        collected = []
        for key, obj in self._store.everything():
            refs = obj["metadata"].get("ownerReferences") or []
            uids = {r["uid"] for r in refs}
            if not refs or (owners is not None and not uids & owners) or self._store.find(key) is not obj:
                continue
            alive = {o["metadata"]["uid"] for _, o in self._store.everything()}
            kept = [r for r in refs if r["uid"] in alive]
            kind = next((k for k in self._served if k.storage == key.resource), None)
            if kind is None:
                continue
            if not kept:
                collected.append(key)
                if not obj["metadata"].get("deletionTimestamp"):
                    self.delete(kind, key, {})
            elif len(kept) < len(refs):
                self._store.commit(key, _with_metadata(obj, ownerReferences=kept))
        return collected

    def _mark(self, key: Key, obj: Obj, grace: int) -> Obj:
        meta = obj["metadata"]
        if meta.get("deletionTimestamp") and meta.get("deletionGracePeriodSeconds", 0) <= grace:
            return obj
        when = self._store.now() + timedelta(seconds=grace)
        changes: dict[str, Any] = {
            "deletionTimestamp": time_text(when),
            "deletionGracePeriodSeconds": grace,
        }
        if meta.get("generation"):
            changes["generation"] = meta["generation"] + 1
        return self._store.commit(key, _with_metadata(obj, **changes))

    def _orphan(self, uid: str) -> None:
        for key, obj in self._store.everything():
            refs = obj["metadata"].get("ownerReferences") or []
            kept = [r for r in refs if r["uid"] != uid]
            if len(kept) < len(refs):
                self._store.commit(key, _with_metadata(obj, ownerReferences=kept))

    def _delete_namespace(self, key: Key, obj: Obj) -> Removal:
        if not obj["metadata"].get("deletionTimestamp"):
            marked = self._mark(key, obj, 0)
            obj = self._store.commit(key, {**marked, "status": {**marked.get("status", {}), "phase": "Terminating"}})
        for inner, _ in self._store.everything():
            kind = next((k for k in self._served if k.storage == inner.resource), None)
            if inner.namespace == key.name and kind is not None and self._store.find(inner):
                self.delete(kind, inner, {"gracePeriodSeconds": 0})
        self._finish_namespace(key.name)
        return Removal(obj, gone=False)

    def _finish_namespace(self, name: str) -> None:
        key = Key("namespaces", "", name)
        obj = self._store.find(key)
        if obj is None or not obj["metadata"].get("deletionTimestamp"):
            return
        if not any(k.namespace == name for k, _ in self._store.everything()):
            self._store.commit(key, None)


def _check_preconditions(kind: Kind, obj: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """ApiError 409 when the object is not the one that was meant."""
    meta = obj["metadata"]
    recreated, modified = "might have been deleted and then recreated", "might have been modified"
    for field, called, what in (("uid", "UID", recreated), ("resourceVersion", "ResourceVersion", modified)):
        if wanted.get(field) and wanted[field] != meta[field]:
            why = (
                f"the {called} in the precondition ({wanted[field]}) does not match the {called} in record "
                f"({meta[field]}). The object {what}"
            )
            raise conflict(kind, meta["name"], why, by_kind=True)


def _grace_seconds(kind: Kind, obj: Mapping[str, Any], options: Mapping[str, Any]) -> int:
    """Only pods that run somewhere are given time (pkg/registry/core/pod/strategy.go, CheckGracefulDelete)."""
    if kind.plural != "pods" or kind.group:
        return 0
    spec = obj.get("spec") or {}
    if not spec.get("nodeName") or (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    asked = options.get("gracePeriodSeconds")
    return int(spec.get("terminationGracePeriodSeconds", POD_GRACE_SECONDS) if asked is None else asked)


def _with_metadata(obj: Mapping[str, Any], **changes: Any) -> Obj:
    meta = {**obj["metadata"], **changes}
    return {**obj, "metadata": {k: v for k, v in meta.items() if v != []}}
