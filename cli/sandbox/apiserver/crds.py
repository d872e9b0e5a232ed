"""How a CustomResourceDefinition becomes a served kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cli.sandbox.apiserver.kinds import Kind, Served
from cli.sandbox.apiserver.shapes import from_object_schema
from cli.sandbox.apiserver.statuses import Cause, invalid_value, required


def kinds_of(crd: Mapping[str, Any]) -> list[Kind]:
    """One kind for each served version."""
    spec = crd["spec"]
    names = spec["names"]
    kinds = []
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        selectable = {
            f["jsonPath"].lstrip("."): tuple(f["jsonPath"].lstrip(".").split("."))
            for f in version.get("selectableFields") or ()
        }
        kinds.append(
            Kind(
                spec["group"],
                version["name"],
                names["kind"],
                names["plural"],
                namespaced=spec["scope"] == "Namespaced",
                singular=names.get("singular") or names["kind"].lower(),
                short_names=tuple(names.get("shortNames") or ()),
                status="status" in (version.get("subresources") or {}),
                generation=True,
                unconditional_update=False,
                selectable=selectable,
                shape=from_object_schema(schema),
                schema=schema,
                printer_columns=tuple(version.get("additionalPrinterColumns") or ()),
            )
        )
    return kinds


def serve(served: Served, crd: Mapping[str, Any]) -> None:
    """Serve what the definition says now, and nothing it said before."""
    served.remove(crd["metadata"]["name"])
    for kind in kinds_of(crd):
        served.add(kind)


def status_of(crd: Mapping[str, Any], now: str) -> dict[str, Any]:
    """The status the real server's controllers give a definition that is served; kept when it says so already."""
    spec = crd["spec"]
    old = crd.get("status") or {}
    since = {c["type"]: c["lastTransitionTime"] for c in old.get("conditions") or () if "lastTransitionTime" in c}
    names = dict(spec["names"])
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", names["kind"] + "List")
    told = (
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    )
    return {
        "acceptedNames": names,
        "storedVersions": [v["name"] for v in spec["versions"] if v.get("storage")],
        "conditions": [
            {"type": t, "status": "True", "reason": r, "message": m, "lastTransitionTime": since.get(t, now)}
            for t, r, m in told
        ],
    }


def faults(crd: Mapping[str, Any]) -> list[Cause]:
    """What would keep a definition from being served."""
    spec = crd.get("spec") or {}
    names = spec.get("names") or {}
    found = [required(f"spec.{n}") for n in ("group", "scope", "versions") if not spec.get(n)]
    found += [required(f"spec.names.{n}") for n in ("plural", "kind") if not names.get(n)]
    if found:
        return found
    wanted = f"{names['plural']}.{spec['group']}"
    if crd["metadata"]["name"] != wanted:
        found.append(
            invalid_value("metadata.name", crd["metadata"]["name"], 'must be spec.names.plural+"."+spec.group')
        )
    if [bool(v.get("storage")) for v in spec["versions"]].count(True) != 1:
        found.append(
            invalid_value(
                "spec.versions",
                [v.get("name") for v in spec["versions"]],
                "must have exactly one version marked as storage version",
            )
        )
    for i, version in enumerate(spec["versions"]):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            found.append(required(f"spec.versions[{i}].schema.openAPIV3Schema", "schemas are required"))
        elif schema.get("type") != "object":
            found.append(required(f"spec.versions[{i}].schema.openAPIV3Schema.type", "must not be empty at the root"))
    return found
