"""What the server says of itself: versions, groups, resources, health."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cli.sandbox.apiserver.kinds import Kind, Served

VERSION: Mapping[str, str] = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.2+lanewise-sandbox",
    "platform": "linux/amd64",
}

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def answer(served: Served, parts: tuple[str, ...]) -> Mapping[str, Any] | None:
    """The body at a discovery path; None when the path is none, or names a group that is not served."""
    match parts:
        case ("version",):
            return VERSION
        case ("api",):
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ("apis",):
            groups = dict.fromkeys(k.group for k in served if k.group)
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(served, g) for g in groups]}
        case ("api", version):
            return _resources([k for k in served if (k.group, k.version) == ("", version)], version)
        case ("apis", group):
            known = any(k.group == group for k in served)
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(served, group)} if known else None
        case ("apis", group, version):
            kinds = [k for k in served if (k.group, k.version) == (group, version)]
            return _resources(kinds, f"{group}/{version}")
        case _:
            return None


def _group(served: Served, group: str) -> dict[str, Any]:
    versions = [
        {"groupVersion": f"{group}/{v}", "version": v}
        for v in dict.fromkeys(k.version for k in served if k.group == group)
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resources(kinds: list[Kind], group_version: str) -> dict[str, Any] | None:
    if not kinds:
        return None
    listed: list[dict[str, Any]] = []
    for kind in sorted(kinds, key=lambda k: k.plural):
        listed.append(
            {
                "name": kind.plural,
                "singularName": kind.singular or kind.kind.lower(),
                "namespaced": kind.namespaced,
                "kind": kind.kind,
                "verbs": _VERBS,
                **({"shortNames": list(kind.short_names)} if kind.short_names else {}),
            }
        )
        if kind.status:
            listed.append(
                {
                    "name": f"{kind.plural}/status",
                    "singularName": "",
                    "namespaced": kind.namespaced,
                    "kind": kind.kind,
                    "verbs": ["get", "patch", "update"],
                }
            )
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}
