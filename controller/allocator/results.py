"""A claim's `status.allocation`, made of the devices that were found for it.

Source: dynamic-resource-allocation, structured/internal/incubating/allocator_incubating.go: Allocate and
createNodeSelector.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from api.refusals import Refused
from controller.allocator.question import Object
from controller.allocator.refusals import Unsupported
from controller.allocator.search import Picked
from controller.allocator.wishes import Claim, Wish


def allocation(
    claim: Claim, picked: Sequence[Picked], met: Sequence[Wish], classes: Mapping[str, Object], node: str
) -> Object:
    """The AllocationResult. `met` has the wish that was met of each request, in their order."""
    devices: dict[str, Any] = {"results": [_result(one) for one in picked]}
    config = _config(claim, met, classes)
    if config:
        devices["config"] = config
    found: dict[str, Any] = {"devices": devices}
    selector = _node_selector(picked, node)
    if selector is not None:
        found["nodeSelector"] = selector
    return found


def _result(one: Picked) -> dict[str, Any]:
    device = one.device.id
    result: dict[str, Any] = {
        "request": one.wish.name,
        "driver": device.driver,
        "pool": device.pool,
        "device": device.device,
    }
    if one.wish.admin:
        result["adminAccess"] = True
    if one.wish.tolerations:
        result["tolerations"] = [dict(toleration) for toleration in one.wish.tolerations]
    return result


def _config(claim: Claim, met: Sequence[Wish], classes: Mapping[str, Object]) -> list[dict[str, Any]]:
    """First what the classes say, each class once, then what the claim says; without requests it is for all."""
    found: list[dict[str, Any]] = []
    of_class: dict[str, list[dict[str, Any]]] = {}
    for wish in met:
        if wish.class_name in of_class:
            for entry in of_class[wish.class_name]:
                entry["requests"].append(wish.name)
            continue
        settings = (classes[wish.class_name].get("spec") or {}).get("config") or ()
        entries: list[dict[str, Any]] = [
            {"source": "FromClass", "requests": [wish.name], **setting} for setting in settings
        ]
        of_class[wish.class_name] = entries
        found += entries
    for setting in claim.config:
        requests = setting.get("requests") or ()
        if not requests or any(_named(wish, requests) for wish in met):
            found.append({"source": "FromClaim", **setting})
    return [_for_all(entry) if _concerns_all(entry, met) else entry for entry in found]


def _named(wish: Wish, requests: Sequence[str]) -> bool:
    return wish.request in requests or wish.name in requests


def _concerns_all(entry: Object, met: Sequence[Wish]) -> bool:
    return all(_named(wish, entry.get("requests") or ()) for wish in met)


def _for_all(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "requests"}


def _node_selector(picked: Sequence[Picked], node: str) -> Object | None:
    """Where the devices can be used; None for everywhere."""
    expressions: list[Object] = []
    fields: list[Object] = []
    for one in picked:
        place = one.device.raw if one.device.per_device else one.device.slice_spec
        if place.get("nodeName") is not None or one.device.raw.get("bindsToNode"):
            only = {"key": "metadata.name", "operator": "In", "values": [node]}
            return {"nodeSelectorTerms": [{"matchFields": [only]}]}
        terms = (place.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
        if len(terms) > 1:
            raise Refused(Unsupported(f"device {one.device.id}", f"a nodeSelector with {len(terms)} terms"))
        for term in terms:
            _extend(fields, term.get("matchFields") or ())
            _extend(expressions, term.get("matchExpressions") or ())
    term = {"matchExpressions": expressions, "matchFields": fields}
    kept = {key: value for key, value in term.items() if value}
    return {"nodeSelectorTerms": [kept]} if kept else None


def _extend(requirements: list[Object], more: Sequence[Object]) -> None:
    for requirement in more:
        if not any(_same(requirement, known) for known in requirements):
            requirements.append(requirement)


def _same(one: Object, other: Object) -> bool:
    return (
        one.get("key") == other.get("key")
        and one.get("operator") == other.get("operator")
        and set(one.get("values") or ()) == set(other.get("values") or ())
    )
