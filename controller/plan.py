"""What to write so that a node's slices become what they should be.

The rules are those of upstream's resourceslice controller, so that whoever watches sees the usual: slices are
matched by the index in their name, a pool keeps its generation while one slice changes, deletions come first and creations
last, and a pool half written is never taken for a whole one, because generation or count do not agree.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api import quantities
from api.inventory import Owner
from api.kube.paths import SLICES

Object = dict[str, Any]

_INDEX = re.compile(r"([0-9a-f]{5,})-")
GENERATION_MAX = 2**63 - 1
"""Of a pool: an int64."""
_GENERATE_NAME_MAX = 58
"""The API server cuts longer bases: 63 less the five random characters it adds."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete this very object, as it was seen."""

    name: str
    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class Update:
    """Replace the object of this name."""

    index: int
    obj: Object


@dataclass(frozen=True, slots=True)
class Create:
    """Create a new object."""

    index: int
    obj: Object


Write = Delete | Update | Create


@dataclass(frozen=True, slots=True)
class Adopted:
    """What the server made of a slice that we sent: it dropped fields, and would again."""

    sent: Object
    """Canonical spec."""
    stored: Object
    """Canonical spec."""
    dropped: tuple[str, ...]
    """The names of the fields that are missing, as paths."""


def plan(
    desired: Sequence[Object], existing: Sequence[Object], owner: Owner | None, adopted: Mapping[int, Adopted]
) -> tuple[Write, ...]:
    """The writes in order; none when all is as it should be.

    `desired` are specs without pool generation. `existing` are our driver's slices of the node (objects as stored). Without an
    `owner` there is nothing to publish, and all goes. `adopted` is what the server is known to make of a slice, by its index.
    """
    highest = max((_generation(obj) for obj in existing), default=0)
    exhausted = highest >= GENERATION_MAX  # not by us; all are deleted, so that it can begin anew
    kept, obsolete = _match(desired if owner and not exhausted else (), existing)
    writes: list[Write] = [_deletion(obj) for obj in obsolete]
    if owner is None:
        return tuple(writes)
    changed = {
        index
        for index, obj in kept.items()
        if not _same(desired[index], obj["spec"], adopted.get(index)) or not _owned(obj, owner)
    }
    missing = [index for index in range(len(desired)) if index not in kept]
    generation = max((_generation(obj) for obj in kept.values()), default=0)
    if missing or len(changed) > 1:
        generation = 1 if exhausted else highest + 1
        changed = set(kept)
    for index in sorted(changed):
        spec = _with_generation(_with_times(desired[index], kept[index]["spec"]), generation)
        metadata = {**kept[index]["metadata"], "ownerReferences": [owner.reference(controller=True)]}
        writes.append(Update(index, {**_TYPE, "metadata": metadata, "spec": spec}))
    for index in missing:
        spec = _with_generation(desired[index], generation)
        metadata = {
            "generateName": generate_name(index, spec["driver"], spec["nodeName"]),
            "ownerReferences": [owner.reference(controller=True)],
        }
        writes.append(Create(index, {**_TYPE, "metadata": metadata, "spec": spec}))
    return tuple(writes)


_TYPE = {"apiVersion": SLICES.api_version, "kind": SLICES.kind}


def generate_name(index: int, driver: str, node: str) -> str:
    """`00000-<driver>-<node>-`, cut where the API server would cut it; the index comes first, so it is never lost."""
    base = f"{index:05x}-{driver}-{node}"[: _GENERATE_NAME_MAX - 1].rstrip(".-")
    return f"{base}-"


def index_of(name: str) -> int | None:
    """The index in a slice's name, None when it was not named by this rule."""
    match = _INDEX.match(name)
    return int(match[1], 16) if match else None


def adoption(sent: Object, stored: Object) -> Adopted | None:
    """What the server's answer lacks of what we sent (both `spec`), None when it took all of it.

    Fields of a feature gate that is off vanish without a word (feature gates). Sending them again would be a hot loop.
    """
    ours, theirs = canonical(sent), canonical(stored)
    if ours == theirs:
        return None
    return Adopted(ours, theirs, tuple(_differences(ours, theirs)))


def canonical(spec: Object) -> Object:
    """A spec with what does not matter taken out: absent and empty fields, generation, times, spelling of quantities."""
    tidy: Object = _tidy(spec)
    tidy.get("pool", {}).pop("generation", None)
    for device in tidy.get("devices", ()):
        for taint in device.get("taints", ()):
            taint.pop("timeAdded", None)
        for capacity in device.get("capacity", {}).values():
            capacity["value"] = str(quantities.parse(str(capacity["value"])))
    return tidy


def _tidy(value: Any) -> Any:
    match value:
        case dict():
            return {key: _tidy(item) for key, item in value.items() if item is not None and item not in ([], {})}
        case list():
            return [_tidy(item) for item in value]
        case _:
            return value


def _match(desired: Sequence[Object], existing: Sequence[Object]) -> tuple[dict[int, Object], list[Object]]:
    """Existing slices by index, of the newest generation, and those that are of no use."""
    newest = max((_generation(obj) for obj in existing), default=0)
    kept: dict[int, Object] = {}
    obsolete: list[Object] = []
    for obj in sorted(existing, key=lambda obj: str(obj["metadata"]["name"])):
        index = index_of(obj["metadata"]["name"])
        useful = index is not None and index < len(desired) and index not in kept and _generation(obj) == newest
        # Driver, pool name and node name cannot be changed.
        if index is not None and useful and _identity(obj["spec"]) == _identity(desired[index]):
            kept[index] = obj
        else:
            obsolete.append(obj)
    return kept, obsolete


def _identity(spec: Object) -> tuple[Any, ...]:
    return spec["driver"], spec["pool"]["name"], spec.get("nodeName")


def _generation(obj: Object) -> int:
    return int(obj["spec"]["pool"].get("generation", 0))


def _same(desired: Object, stored: Object, adopted: Adopted | None) -> bool:
    ours, theirs = canonical(desired), canonical(stored)
    return ours == theirs or (adopted is not None and adopted.sent == ours and adopted.stored == theirs)


def _owned(obj: Object, owner: Owner) -> bool:
    references = obj["metadata"].get("ownerReferences") or ()
    return any(reference.get("uid") == owner.uid and reference.get("controller") for reference in references)


def _deletion(obj: Object) -> Delete:
    metadata = obj["metadata"]
    return Delete(metadata["name"], metadata["uid"], metadata["resourceVersion"])


def _with_generation(spec: Object, generation: int) -> Object:
    return {**spec, "pool": {**spec["pool"], "generation": generation}}


def _with_times(desired: Object, stored: Object) -> Object:
    """`desired` with the times of taints that are there already: left out, they would begin anew (pkg/apis/resource/v1)."""
    times = {
        (device["name"], taint["key"], taint.get("value", ""), taint["effect"]): taint["timeAdded"]
        for device in stored.get("devices") or ()
        for taint in device.get("taints") or ()
        if "timeAdded" in taint
    }
    devices = []
    for device in desired.get("devices") or ():
        taints = []
        for taint in device.get("taints") or ():
            time = times.get((device["name"], taint["key"], taint.get("value", ""), taint["effect"]))
            taints.append({**taint, "timeAdded": time} if time else taint)
        devices.append({**device, "taints": taints} if taints else device)
    return {**desired, "devices": devices}


def _differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Paths of what `theirs` lacks or has otherwise; devices by name, and each path once for all devices."""
    match ours, theirs:
        case dict(), dict():
            found = [
                line
                for key, value in ours.items()
                for line in (
                    _differences(value, theirs[key], f"{path}.{key}".lstrip("."))
                    if key in theirs
                    else [f"{path}.{key}".lstrip(".")]
                )
            ]
        case list(), list() if len(ours) == len(theirs):
            found = [
                line for one, other in zip(ours, theirs, strict=True) for line in _differences(one, other, f"{path}[]")
            ]
        case _:
            found = [] if ours == theirs else [path]
    return list(dict.fromkeys(found))
