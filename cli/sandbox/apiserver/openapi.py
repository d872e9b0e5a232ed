"""As much of /openapi/v3 as kubectl needs before it sends an object: that the server checks fields itself.

There are no schemas in it, so `kubectl explain` has nothing to say. Who asks what: kubectl's `QueryParamVerifierV3`
(k8s.io/cli-runtime, pkg/resource/query_param_verifier_v3.go).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cli.sandbox.apiserver.kinds import Kind, Served

_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string"}}
    for name in ("dryRun", "fieldManager", "fieldValidation", "force")
]


def answer(served: Served, parts: tuple[str, ...]) -> Mapping[str, Any] | None:
    """The body at a path below /openapi/v3; None when there is nothing."""
    match parts:
        case ("openapi", "v3"):
            roots = dict.fromkeys(_root(kind) for kind in served)
            return {"paths": {root: {"serverRelativeURL": f"/openapi/v3/{root}"} for root in roots}}
        case ("openapi", "v3", *rest):
            kinds = [kind for kind in served if _root(kind) == "/".join(rest)]
            return _document(kinds) if kinds else None
        case _:
            return None


def _root(kind: Kind) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _document(kinds: list[Kind]) -> dict[str, Any]:
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "lanewise-sandbox"},
        "paths": {_path(kind): {"patch": _patch(kind), "parameters": _PARAMETERS} for kind in kinds},
        "components": {"schemas": {}},
    }


def _path(kind: Kind) -> str:
    namespace = "/namespaces/{namespace}" if kind.namespaced else ""
    return f"/{_root(kind)}{namespace}/{kind.plural}/{{name}}"


def _patch(kind: Kind) -> dict[str, Any]:
    return {
        "operationId": f"patch{kind.kind}",
        "parameters": _PARAMETERS,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {"group": kind.group, "kind": kind.kind, "version": kind.version},
    }
