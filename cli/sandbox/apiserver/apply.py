"""Server-side apply: who owns which field, what an applied configuration changes, and who objects.

Follows structured-merge-diff as Kubernetes 1.37.2 uses it: an applier owns the fields it lists; fields it no longer
lists go unless somebody else owns them; changing a field that somebody else owns is a conflict unless forced; every
other write makes its manager the owner of what it changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cli.sandbox.apiserver.fieldsets import (
    SYSTEM_FIELDS,
    DuplicateItemError,
    FieldSet,
    Path,
    containers,
    differences,
    dotted,
    flatten,
    from_fields_v1,
    items_by_step,
    step_of,
    to_fields_v1,
    with_parents,
)
from cli.sandbox.apiserver.shapes import Shape
from cli.sandbox.apiserver.statuses import ApiError


@dataclass(frozen=True, slots=True)
class Manager:
    """Who wrote: one entry of managedFields without its fields and time."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""

    def text(self) -> str:
        """As conflict messages name it."""
        who = f'"{self.name}"'
        if self.subresource:
            who += f' with subresource "{self.subresource}"'
        if self.operation == "Update":
            who += f" using {self.api_version}"
        return who


@dataclass(frozen=True, slots=True)
class Owned:
    """The fields of one manager, and when they last changed hands."""

    paths: FieldSet
    time: str


Owners = dict[Manager, Owned]


def read_owners(obj: Mapping[str, Any] | None) -> Owners:
    """The managedFields of an object."""
    entries = ((obj or {}).get("metadata") or {}).get("managedFields") or []
    return {
        Manager(e.get("manager", ""), e["operation"], e.get("apiVersion", ""), e.get("subresource", "")): Owned(
            from_fields_v1(e.get("fieldsV1") or {}), e.get("time", "")
        )
        for e in entries
        if e.get("operation")
    }


def written(owners: Owners) -> list[dict[str, Any]]:
    """Owners as managedFields: appliers first, then by time, as the real server sorts them."""
    ordered = sorted(owners.items(), key=lambda o: (o[0].operation, o[1].time, o[0].name, o[0].subresource))
    return [
        {
            "manager": who.name,
            "operation": who.operation,
            "apiVersion": who.api_version,
            "time": owned.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": to_fields_v1(owned.paths),
        }
        | ({"subresource": who.subresource} if who.subresource else {})
        for who, owned in ordered
        if owned.paths
    ]


def owners_after_update(
    old: Mapping[str, Any] | None, new: Mapping[str, Any], who: Manager, shape: Shape, now: str, *, untyped: bool
) -> Owners:
    """Who owns what after a create, replace or patch: the writer takes what it changed, what is gone has no owner.

    `untyped` objects (custom resources) have no structs that are there by themselves.
    """
    try:
        changed, gone = differences(flatten(old, shape) if old else {}, flatten(new, shape))
    except DuplicateItemError:  # only apply insists on unique keys
        return read_owners(old)
    before, after = containers(old or {}, shape), containers(new, shape)
    made = {path for path, free in after.items() if path not in before and (free or untyped)}
    gone |= before.keys() - after.keys()
    changed = (changed | made) - SYSTEM_FIELDS - {("f:metadata",)}
    if not untyped and not new.get("status"):
        changed -= {("f:status",)}
    if not changed and not gone:
        return read_owners(old)
    owners: Owners = {}
    for other, owned in read_owners(old).items():
        keeps = owned.paths - gone
        owners[other] = replace(owned, paths=keeps if other == who else keeps - changed)
    mine = owners.get(who, Owned(frozenset(), now))
    paths = mine.paths | changed
    owners[who] = Owned(paths, now if paths != mine.paths else mine.time)
    return owners


@dataclass(frozen=True, slots=True)
class Applied:
    """What an apply makes of an object, and who owns it then."""

    obj: dict[str, Any]
    owners: Owners


def apply(
    live: Mapping[str, Any] | None, config: Mapping[str, Any], who: Manager, shape: Shape, *, force: bool, now: str
) -> Applied:
    """Merge a configuration into the live object; `config` is already cut down to what this endpoint may write.

    Raises ApiError 409 naming each manager and field in the way, and DuplicateItemError for a keyed list with two items
    of one key.
    """
    config_paths = frozenset(flatten(config, shape))
    owners = read_owners(live)
    last = owners.get(who, Owned(frozenset(), now))
    merged = merge(live or {}, config, shape)
    owned_by_others = frozenset(p for other, o in owners.items() if other != who for p in o.paths)
    pruned = _without_dropped(merged, last.paths, config_paths | owned_by_others, shape)

    after = flatten(pruned, shape)
    changed, gone = differences(flatten(live, shape) if live else {}, after)
    gone |= containers(live or {}, shape).keys() - containers(pruned, shape).keys()
    by_name = sorted(owners.items(), key=lambda owner: owner[0].name)
    conflicts = [
        (other, path) for other, o in by_name if other != who for path in sorted(o.paths & changed, key=_reading_order)
    ]
    if conflicts and not force:
        raise _refusal(conflicts)
    lost = frozenset(path for _, path in conflicts)
    result: Owners = {other: replace(o, paths=o.paths - lost - gone) for other, o in owners.items()}
    mine = config_paths - SYSTEM_FIELDS
    result[who] = Owned(mine, now if mine != last.paths or changed - SYSTEM_FIELDS or gone else last.time)
    return Applied(pruned, result)


def _reading_order(path: Path) -> tuple[tuple[bool, str], ...]:
    """Fields of a map before what lies deeper in it."""
    return tuple((depth < len(path), step) for depth, step in enumerate(path, start=1))


def _refusal(conflicts: list[tuple[Manager, Path]]) -> ApiError:
    named = [(who.text(), dotted(path)) for who, path in conflicts]
    if len(named) == 1:
        message = f"Apply failed with 1 conflict: conflict with {named[0][0]}: {named[0][1]}"
    else:
        lines = []
        for who in sorted({who for who, _ in named}):
            lines.append(f"conflicts with {who}:")
            lines += [f"- {path}" for other, path in named if other == who]
        message = f"Apply failed with {len(named)} conflicts: " + "\n".join(lines)
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": path} for who, path in named
    ]
    return ApiError(409, "Conflict", message, {"causes": causes})


def merge(live: Any, config: Any, shape: Shape) -> Any:
    """`config` laid over `live`, list items matched by their keys."""
    if shape.atomic:
        return config
    if isinstance(live, Mapping) and isinstance(config, Mapping):
        merged = dict(live)
        for name, value in config.items():
            merged[name] = merge(live[name], value, shape.child(name)) if name in live else value
        return merged
    if isinstance(live, list) and isinstance(config, list) and shape.lists != "atomic":
        return _merge_items(live, config, shape)
    return config


def _merge_items(live: list[Any], config: list[Any], shape: Shape) -> list[Any]:
    """Items in the order of `config`; those it does not list keep their place between the others."""
    old, new = items_by_step(live, shape), items_by_step(config, shape)
    merged: list[Any] = []
    waiting = list(old)
    for step, item in new.items():
        _take_unlisted(waiting, old, new, merged)
        if step in old:
            waiting.remove(step)
            merged.append(merge(old[step], item, shape.item()) if shape.lists == "map" else item)
        else:
            merged.append(item)
    _take_unlisted(waiting, old, new, merged)
    return merged


def _take_unlisted(waiting: list[str], old: Mapping[str, Any], new: Mapping[str, Any], merged: list[Any]) -> None:
    while waiting and waiting[0] not in new:
        merged.append(old[waiting.pop(0)])


def _without_dropped(obj: dict[str, Any], last: FieldSet, owned: FieldSet, shape: Shape) -> dict[str, Any]:
    """Remove what the applier listed last time and nobody lists now, with everything below it."""
    kept = with_parents(owned)
    dropped = frozenset(p for p in with_parents(last) if p not in kept)
    if not dropped:
        return obj
    left = _remove(obj, shape, (), dropped)
    return left if isinstance(left, dict) else {}


def _remove(value: Any, shape: Shape, at: Path, dropped: FieldSet) -> Any:
    if isinstance(value, Mapping) and not shape.atomic:
        return {
            name: _remove(sub, shape.child(name), (*at, f"f:{name}"), dropped)
            for name, sub in value.items()
            if (*at, f"f:{name}") not in dropped
        }
    if isinstance(value, list) and shape.lists != "atomic":
        left = []
        for item in value:
            here = (*at, step_of(item, shape) or "")
            if here in dropped:
                continue
            keys = frozenset((*here, f"f:{k}") for k in shape.keys)
            left.append(_remove(item, shape.item(), here, dropped - keys))
        return left
    return value
