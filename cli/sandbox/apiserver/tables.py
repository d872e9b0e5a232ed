"""Objects as kubectl prints them: which columns a kind has, and what stands in them.

Those of custom resources come from their definition. Those of a few built-in kinds are written down here, after the real
server's printers (pkg/printers/internalversion/printers.go); others have a name and an age.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cli.sandbox.apiserver.kinds import Kind

_STEP = re.compile(r"\.([A-Za-z0-9_-]+)|\[\?\(@\.([A-Za-z0-9_-]+)==\"([^\"]*)\"\)\]|\[(\d+)\]")
Cell = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and what stands below it; `wide` ones are shown with `-o wide` only."""

    name: str
    kind: str
    cell: Cell
    wide: bool = False


def wanted(accept: str) -> bool:
    """Whether the client asks for a table."""
    return "as=Table" in accept and "g=meta.k8s.io" in accept


def table(kind: Kind, body: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """An object, or a list of them, as a Table of meta.k8s.io/v1."""
    columns = _columns(kind, now)
    objects = body.get("items", [body])
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": body["metadata"] if "items" in body else {"resourceVersion": body["metadata"]["resourceVersion"]},
        "columnDefinitions": [
            {
                "name": column.name,
                "type": column.kind,
                "format": "name" if column.name == "Name" else "",
                "description": "",
                "priority": int(column.wide),
            }
            for column in columns
        ],
        "rows": [
            {
                "cells": [column.cell(obj) for column in columns],
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": obj["metadata"],
                },
            }
            for obj in objects
        ],
    }


def _columns(kind: Kind, now: datetime) -> list[Column]:
    age = Column("Age", "string", lambda obj: _age(obj["metadata"].get("creationTimestamp"), now))
    if kind.custom:
        given = [_custom(column, now) for column in kind.printer_columns]
        return [_NAME, *(given or [age])]
    if kind.resource == "events":
        return _event_columns(now)
    between = _BUILTIN.get(kind.resource, [])
    return [
        _NAME,
        *(column for column in between if not column.wide),
        age,
        *(column for column in between if column.wide),
    ]


def _custom(given: Mapping[str, Any], now: datetime) -> Column:
    path, kind = given["jsonPath"], given["type"]

    def cell(obj: Mapping[str, Any]) -> Any:
        value = next(at(obj, path), None)
        return _age(value, now) if kind == "date" else value

    return Column(given["name"], "string" if kind == "date" else kind, cell, bool(given.get("priority")))


def at(value: Any, path: str) -> Iterator[Any]:
    """What a JSONPath of the simple kind leads to: `.a.b`, `[0]`, `[?(@.type=="Ready")]`. ValueError for another kind."""
    step = _STEP.match(path)
    if not path:
        yield value
        return
    if step is None:
        raise ValueError(f"{path!r} is no path that is understood here")
    name, field, wanted_text, index = step.groups()
    rest = path[step.end() :]
    if name is not None and isinstance(value, Mapping) and name in value:
        yield from at(value[name], rest)
    elif field is not None and isinstance(value, list):
        for entry in value:
            if isinstance(entry, Mapping) and entry.get(field) == wanted_text:
                yield from at(entry, rest)
    elif index is not None and isinstance(value, list) and int(index) < len(value):
        yield from at(value[int(index)], rest)


def _age(timestamp: str | None, now: datetime) -> str:
    """As `kubectl` writes durations (k8s.io/apimachinery, duration.HumanDuration), in its coarser half."""
    if not timestamp:
        return "<unknown>"
    seconds = int((now - datetime.fromisoformat(timestamp)).total_seconds())
    for size, letter, least in ((86400, "d", 2 * 86400), (3600, "h", 3 * 3600), (60, "m", 120)):
        if seconds >= least:
            return f"{seconds // size}{letter}"
    return f"{max(seconds, 0)}s"


def _ready(pod: Mapping[str, Any]) -> str:
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return f"{sum(bool(status.get('ready')) for status in statuses)}/{len(pod['spec'].get('containers') or [])}"


def _pod_status(pod: Mapping[str, Any]) -> str:
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or []:
        if reason := ((container.get("state") or {}).get("waiting") or {}).get("reason"):
            return str(reason)
    return str(status.get("phase") or "Unknown")


def _restarts(pod: Mapping[str, Any]) -> int:
    return sum(status.get("restartCount", 0) for status in (pod.get("status") or {}).get("containerStatuses") or [])


def _claim_state(claim: Mapping[str, Any]) -> str:
    """See `resourceClaimState` of the real printers."""
    status = claim.get("status") or {}
    states = ["deleted"] if claim["metadata"].get("deletionTimestamp") else []
    if not status.get("allocation"):
        states += [] if states else ["pending"]
    else:
        states += ["allocated", *(["reserved"] if status.get("reservedFor") else [])]
    return ",".join(states)


def _event_columns(now: datetime) -> list[Column]:
    def last_seen(event: Mapping[str, Any]) -> str:
        latest = (event.get("series") or {}).get("lastObservedTime") or event.get("lastTimestamp")
        return _age(latest or event.get("eventTime"), now)

    def about(event: Mapping[str, Any]) -> str:
        involved = event.get("involvedObject") or {}
        return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"

    return [
        Column("Last Seen", "string", last_seen),
        _plain("Type", "type"),
        _plain("Reason", "reason"),
        Column("Object", "string", about),
        _plain("Message", "message"),
    ]


def _plain(name: str, *path: str, wide: bool = False, missing: str = "<none>") -> Column:
    """A column with the text at a path, `missing` where there is none."""

    def cell(obj: Mapping[str, Any]) -> Any:
        value: Any = obj
        for part in path:
            value = value.get(part) if isinstance(value, Mapping) else None
        return missing if value is None else value

    return Column(name, "string", cell, wide)


def _node_status(node: Mapping[str, Any]) -> str:
    conditions = (node.get("status") or {}).get("conditions") or []
    ready = [condition["status"] for condition in conditions if condition["type"] == "Ready"]
    return {"True": "Ready", "False": "NotReady"}.get(ready[0] if ready else "", "Unknown")


_NAME = Column("Name", "string", lambda obj: obj["metadata"]["name"])
_BUILTIN: Mapping[str, list[Column]] = {
    "pods": [
        Column("Ready", "string", _ready),
        Column("Status", "string", _pod_status),
        Column("Restarts", "string", _restarts),
        _plain("IP", "status", "podIP", wide=True),
        _plain("Node", "spec", "nodeName", wide=True),
    ],
    "nodes": [Column("Status", "string", _node_status)],
    "namespaces": [_plain("Status", "status", "phase")],
    "resourceclaims.resource.k8s.io": [Column("State", "string", _claim_state)],
    "resourceslices.resource.k8s.io": [
        _plain("Node", "spec", "nodeName", missing="<unset>"),
        _plain("Driver", "spec", "driver"),
        _plain("Pool", "spec", "pool", "name"),
    ],
    "leases.coordination.k8s.io": [_plain("Holder", "spec", "holderIdentity")],
}
