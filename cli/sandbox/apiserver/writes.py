"""What every write goes through: metadata, subresources, versions, ownership, then the store.

What one kind in particular wants of its objects is asked of `rules`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cli.sandbox.apiserver import apply, bodies, crds, patches, rules
from cli.sandbox.apiserver.bodies import check_header, check_name, unsupported_patch, without_nulls
from cli.sandbox.apiserver.deletion import Deletion
from cli.sandbox.apiserver.fieldsets import DuplicateItemError
from cli.sandbox.apiserver.gates import Gates, without
from cli.sandbox.apiserver.kinds import Kind, Served
from cli.sandbox.apiserver.statuses import (
    ApiError,
    bad_request,
    conflict,
    forbidden,
    forbidden_field,
    invalid,
    invalid_options,
    invalid_value,
    not_found,
)
from cli.sandbox.apiserver.statuses import already_exists as taken
from cli.sandbox.apiserver.store import Key, Obj, Store

APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

# Set by the server alone; whatever a client sends for them is replaced.
_SYSTEM = (
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "name",
    "namespace",
    "selfLink",
    "managedFields",
    "resourceVersion",
)


@dataclass(frozen=True, slots=True)
class Writer:
    """On whose behalf and how: the field manager, and what the query asked for."""

    manager: str
    force: bool = False
    dry_run: bool = False
    validation: str = "Warn"


@dataclass(frozen=True, slots=True)
class Written:
    """An object after a write; `created` where there was none before."""

    obj: Obj
    created: bool = False


class Writes:
    """Creates, replaces and patches on a store."""

    def __init__(
        self,
        store: Store,
        served: Served,
        deletion: Deletion,
        gates: Gates,
        dropped_fields: Callable[[], frozenset[str]],
    ) -> None:
        self._store = store
        self._served = served
        self._deletion = deletion
        self.gates = gates
        self._dropped_fields = dropped_fields

    def create(self, kind: Kind, namespace: str, body: Mapping[str, Any], writer: Writer) -> Written:
        """POST."""
        with self._store.lock:
            check_header(kind, namespace, body)
            meta = dict(body.get("metadata") or {})
            if meta.get("resourceVersion"):
                raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
            key = Key(kind.storage, namespace, meta.get("name") or "")
            if not key.name and meta.get("generateName"):
                key = key._replace(name=self._store.generated_name(key, meta["generateName"]))
            self._check_namespace(kind, key)
            if self._store.find(key) is not None:
                raise taken(kind, key.name)
            return self._create(kind, key, {**body, "metadata": {**meta, "name": key.name}}, writer)

    def replace(self, kind: Kind, key: Key, body: Mapping[str, Any], writer: Writer, subresource: str = "") -> Written:
        """PUT."""
        with self._store.lock:
            check_header(kind, key.namespace, body)
            meta = body.get("metadata") or {}
            check_name(meta, key)
            old = self._store.find(key)
            if old is None and kind.create_on_update and not subresource:
                self._check_namespace(kind, key)
                return self._create(kind, key, body, writer)
            if old is None:
                raise not_found(kind, key.name)
            if meta.get("uid") not in (None, "", old["metadata"]["uid"]):
                was = old["metadata"]["uid"]
                why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {was}"
                raise conflict(kind, key.name, why)
            if not meta.get("resourceVersion") and not kind.unconditional_update:
                raise invalid(
                    kind,
                    key.name,
                    [invalid_value("metadata.resourceVersion", 0, "must be specified for an update")],
                    by_resource=True,
                )
            return Written(self._update(kind, key, old, kind.kept(body), writer, subresource))

    def patch(
        self, kind: Kind, key: Key, content_type: str, body: Any, writer: Writer, subresource: str = ""
    ) -> Written:
        """PATCH of the four sorts; ApiError 415 for a fifth."""
        with self._store.lock:
            if content_type == APPLY:
                return self._apply(kind, key, body, writer, subresource)
            if writer.force:
                raise invalid_options(forbidden_field("force", "may not be specified for non-apply patch"))
            old = self._store.find(key)
            if old is None:
                raise not_found(kind, key.name)
            shown = kind.shown(old)
            if content_type == JSON_PATCH:
                new = patches.json_patch(shown, body)
            elif content_type == MERGE_PATCH:
                new = patches.merge_patch(shown, body)
            elif content_type == STRATEGIC_PATCH and not kind.custom:
                new = patches.strategic_patch(shown, body, kind.shape)
            else:
                raise unsupported_patch(known=content_type == STRATEGIC_PATCH)
            if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
                raise bad_request("the patched object is no object")
            check_header(kind, key.namespace, new)
            check_name(new["metadata"], key)
            if writer.validation == "Strict" and (unknown := rules.unknown_fields(kind, new)):
                raise invalid(kind, key.name, [invalid_value("patch", new, bodies.strict_complaint(unknown))])
            return Written(self._update(kind, key, old, kind.kept(new), writer, subresource))

    def _apply(self, kind: Kind, key: Key, body: Any, writer: Writer, subresource: str) -> Written:
        if not isinstance(body, dict) or not isinstance(body.get("metadata") or {}, dict):
            raise bad_request("error decoding YAML: an applied configuration is an object")
        config = without_nulls(body)
        meta = config.setdefault("metadata", {})
        check_header(kind, key.namespace, config, strict=True)
        meta.setdefault("name", key.name)
        check_name(meta, key)
        if meta.get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        old = self._store.find(key)
        if old is None and subresource:
            raise not_found(kind, key.name)
        if old is None and meta.get("uid"):
            why = f"uid mismatch: the provided object specified uid {meta['uid']}, and no existing object was found"
            raise conflict(kind, key.name, why)
        stored = old["metadata"]["resourceVersion"] if old is not None else ""
        if stored and meta.get("resourceVersion", stored) != stored:
            raise conflict(kind, key.name)
        # Fields this endpoint never writes are not owned through it either (GetResetFields of the strategies).
        if subresource:
            config = {k: v for k, v in config.items() if k in ("apiVersion", "kind", subresource)}
            config["metadata"] = {"name": key.name}
        elif kind.status:
            config.pop("status", None)
        if unknown := rules.unknown_fields(kind, config):
            raise bodies.untypable(kind, key, ", ".join(f".{path}: field not declared in schema" for path in unknown))
        who = apply.Manager(writer.manager, "Apply", kind.api_version, subresource)
        now = self._store.timestamp()
        try:
            result = apply.apply(old, kind.kept(config), who, kind.shape, force=writer.force, now=now)
        except DuplicateItemError as wrong:
            raise bodies.untypable(kind, key, str(wrong)) from wrong
        if old is None:
            self._check_namespace(kind, key)
            return self._create(kind, key, result.obj, writer, result.owners)
        return Written(self._update(kind, key, old, result.obj, writer, subresource, result.owners))

    def _create(
        self, kind: Kind, key: Key, body: Mapping[str, Any], writer: Writer, owners: apply.Owners | None = None
    ) -> Written:
        meta = {k: v for k, v in (body.get("metadata") or {}).items() if k not in _SYSTEM}
        meta |= {"name": key.name, "uid": str(uuid.uuid4()), "creationTimestamp": self._store.timestamp()}
        if key.namespace:
            meta["namespace"] = key.namespace
        if kind.generation:
            meta["generation"] = 1
        obj = {"kind": kind.kind, "apiVersion": kind.api_version, **kind.kept(body), "metadata": meta}
        if kind.status and not kind.keeps_status_on_create:
            obj.pop("status", None)
        obj = self._fitted(kind, obj, None, writer, "")
        obj = self._owned(kind, obj, None, writer, "", owners)
        if writer.dry_run:
            return Written(kind.shown(obj), created=True)
        told = self._store.commit(key, obj)
        if kind.plural == "customresourcedefinitions":
            crds.serve(self._served, told)
        return Written(kind.shown(told), created=True)

    def _update(
        self,
        kind: Kind,
        key: Key,
        old: Obj,
        new: Mapping[str, Any],
        writer: Writer,
        subresource: str,
        owners: apply.Owners | None = None,
    ) -> Obj:
        sent = new.get("metadata") or {}
        before = old["metadata"]
        if sent.get("uid") not in (None, "", before["uid"]):
            raise invalid(kind, key.name, [invalid_value("metadata.uid", sent["uid"], "field is immutable")])
        if sent.get("resourceVersion") not in (None, "", before["resourceVersion"]):
            raise conflict(kind, key.name)
        obj = dict(new)
        if subresource:
            obj = {**old, subresource: new[subresource]} if subresource in new else _less(old, subresource)
        elif kind.status:
            obj = {**obj, "status": old["status"]} if "status" in old else _less(obj, "status")
        meta = {k: v for k, v in (before if subresource else sent).items() if k not in _SYSTEM and v not in ([], {})}
        obj["metadata"] = meta | {k: before[k] for k in _SYSTEM if k in before}
        if before.get("deletionTimestamp") and set(meta.get("finalizers", ())) - set(before.get("finalizers", ())):
            why = "no new finalizers can be added if the object is being deleted"
            raise invalid(kind, key.name, [forbidden_field("metadata.finalizers", why)])
        obj = self._fitted(kind, obj, old, writer, subresource)
        if kind.generation and _desire(kind, obj) != _desire(kind, old):
            obj["metadata"]["generation"] = before.get("generation", 0) + 1
        obj = self._owned(kind, obj, old, writer, subresource, owners)
        if obj == old or writer.dry_run:
            return kind.shown(obj)
        waits = before.get("deletionTimestamp") and not before.get("deletionGracePeriodSeconds")
        if waits and not obj["metadata"].get("finalizers") and kind.plural != "namespaces":
            self._store.commit(key, obj)
            return kind.shown(self._deletion.forget(key))
        told = self._store.commit(key, obj)
        if kind.plural == "customresourcedefinitions":
            crds.serve(self._served, told)
        return kind.shown(told)

    def _fitted(self, kind: Kind, obj: Obj, old: Obj | None, writer: Writer, subresource: str) -> Obj:
        """Unknown and disabled fields dropped, defaults filled in, and everything checked; ApiError 422 when not fit."""
        self._check_unknown(kind, obj, writer)
        dropped = self.gates.dropped_from(kind) | self._dropped_fields()
        obj = rules.prepared(kind, without(obj, dropped, old), self._store.timestamp(), old)
        if causes := rules.faults(kind, obj, old, subresource):
            raise invalid(kind, obj["metadata"].get("name") or "", causes)
        return obj

    def _owned(
        self, kind: Kind, obj: Obj, old: Obj | None, writer: Writer, subresource: str, owners: apply.Owners | None
    ) -> Obj:
        if owners is None:
            who = apply.Manager(writer.manager, "Update", kind.api_version, subresource)
            owners = apply.owners_after_update(old, obj, who, kind.shape, self._store.timestamp(), untyped=kind.custom)
        entries = apply.written(owners)
        meta = {k: v for k, v in obj["metadata"].items() if k != "managedFields"}
        return {**obj, "metadata": meta | ({"managedFields": entries} if entries else {})}

    def _check_unknown(self, kind: Kind, obj: Mapping[str, Any], writer: Writer) -> None:
        if writer.validation == "Strict" and (unknown := rules.unknown_fields(kind, obj)):
            raise bodies.unknown_fields(kind, unknown)

    def _check_namespace(self, kind: Kind, key: Key) -> None:
        if not kind.namespaced:
            return
        found = self._store.find(Key("namespaces", "", key.namespace))
        if found is None:
            raise not_found(self._served.named("namespaces"), key.namespace)
        if found["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {key.namespace} because it is being terminated"
            raise forbidden(kind, key.name, why)


def _less(obj: Mapping[str, Any], field: str) -> Obj:
    return {k: v for k, v in obj.items() if k != field}


def _desire(kind: Kind, obj: Mapping[str, Any]) -> Obj:
    aside = ("metadata", "apiVersion", "kind") + (("status",) if kind.status else ())
    return {k: v for k, v in obj.items() if k not in aside}
