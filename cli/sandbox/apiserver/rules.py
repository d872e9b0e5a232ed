"""What a kind wants of its objects: defaults filled in before, faults found after. The table of who checks what."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from cli.sandbox.apiserver import claims, claimstatus, crds, formats, known, schema, slices
from cli.sandbox.apiserver.bodies import without_nulls
from cli.sandbox.apiserver.kinds import Kind
from cli.sandbox.apiserver.quantity import canonical
from cli.sandbox.apiserver.statuses import ApiError, Cause, bad_request, invalid_value, required

__all__ = ["Cause", "faults", "prepared", "unknown_fields"]

Obj = dict[str, Any]
Check = Callable[[Mapping[str, Any], Mapping[str, Any] | None], list[Cause]]

_CHECKS: Mapping[str, Check] = {
    "resourceslices.resource.k8s.io": slices.faults,
    "resourceclaims.resource.k8s.io": claims.faults,
    "resourceclaimtemplates.resource.k8s.io": claims.template_faults,
    "deviceclasses.resource.k8s.io": claims.class_faults,
    "customresourcedefinitions.apiextensions.k8s.io": lambda obj, _old: crds.faults(obj),
}


def unknown_fields(kind: Kind, obj: Mapping[str, Any]) -> list[str]:
    """Fields that the kind does not have, as far as it is known here which it has."""
    return (_read(kind, obj) if kind.schema is None else schema.pruned(obj, kind.schema))[1]


def prepared(kind: Kind, obj: Mapping[str, Any], now: str, old: Mapping[str, Any] | None = None) -> Obj:
    """The object as the real server would store it in place of `old`: without unknown fields, with defaults."""
    if kind.schema is not None:
        defaulted: Obj = schema.with_defaults(schema.pruned(obj, kind.schema)[0], kind.schema)
        return defaulted
    fit: Obj = without_nulls(copy.deepcopy(_read(kind, obj)[0]))
    try:
        _fill_in(kind, fit, now, old or {})
    except ValueError:  # the one text that decoding a typed object looks into
        rule = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        raise _unreadable(kind, rule) from None
    return fit


def _read(kind: Kind, obj: Mapping[str, Any]) -> tuple[Obj, list[str]]:
    try:
        return known.pruned(kind.resource, obj)
    except known.WrongTypeError as error:
        raise _unreadable(kind, str(error)) from None


def _unreadable(kind: Kind, why: str) -> ApiError:
    return bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')


def _fill_in(kind: Kind, fit: Obj, now: str, old: Mapping[str, Any]) -> None:
    if kind.status:  # a struct in the Go types, so always there
        fit.setdefault("status", {})
    match kind.resource:
        case "resourceslices.resource.k8s.io":
            slices.fill_in(fit, now)
        case "resourceclaims.resource.k8s.io":
            claims.fill_in(fit.get("spec") or {}, fit.get("status") or {})
            claimstatus.without_stale_devices(fit, old)
        case "resourceclaimtemplates.resource.k8s.io":
            claims.fill_in((fit.get("spec") or {}).get("spec") or {}, {})
        case "customresourcedefinitions.apiextensions.k8s.io":
            if not crds.faults(fit):
                fit["status"] = crds.status_of(fit, now)
        case "nodes":
            _fit_node(fit)
        case "namespaces":
            fit.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
            fit["status"] = fit.get("status") or {"phase": "Active"}
        case "pods":
            fit["status"] = fit.get("status") or {"phase": "Pending"}


def _fit_node(node: Obj) -> None:
    status = node.get("status") or {}
    for amounts in {"capacity", "allocatable"} & status.keys():
        status[amounts] = {name: canonical(amount) for name, amount in status[amounts].items()}


def faults(kind: Kind, obj: Mapping[str, Any], old: Mapping[str, Any] | None, subresource: str) -> list[Cause]:
    """Everything the API has against the object."""
    found = _metadata_faults(obj["metadata"])
    if kind.schema is not None:
        return found + schema.faults(obj, kind.schema)
    if kind.resource == "resourceclaims.resource.k8s.io" and subresource == "status":
        return found + claimstatus.faults(obj, old or {})
    check = _CHECKS.get(kind.resource)
    return found + (check(obj, old) if check and not subresource else [])


def _metadata_faults(meta: Mapping[str, Any]) -> list[Cause]:
    name = meta.get("name") or ""
    if not name:
        return [required("metadata.name", "name or generateName is required")]
    found = formats.subdomain(name, "metadata.name")
    for key, value in (meta.get("labels") or {}).items():
        found += formats.label_name(key, "metadata.labels") + formats.label_value(value, "metadata.labels")
    for key in meta.get("annotations") or {}:
        found += formats.label_name(key.lower(), "metadata.annotations")
    for i, finalizer in enumerate(meta.get("finalizers") or ()):
        found += formats.label_name(finalizer, "metadata.finalizers")
        if "/" not in finalizer and finalizer not in ("orphan", "foregroundDeletion", "kubernetes"):
            rule = "name is neither a standard finalizer name nor is it fully qualified"
            found.append(invalid_value(f"metadata.finalizers[{i}]", finalizer, rule))
    return found + _owner_faults(meta.get("ownerReferences") or [])


def _owner_faults(refs: list[Mapping[str, Any]]) -> list[Cause]:
    found = []
    for i, ref in enumerate(refs):
        found += [
            required(f"metadata.ownerReferences[{i}].{field}", "must not be empty")
            for field in ("apiVersion", "kind", "name", "uid")
            if not ref.get(field)
        ]
    if sum(bool(ref.get("controller")) for ref in refs) > 1:
        found.append(
            invalid_value("metadata.ownerReferences", "", "Only one reference can have Controller set to true")
        )
    return found
