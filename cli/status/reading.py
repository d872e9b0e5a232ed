"""Reading the cluster's objects for a status.

All readers take parsed JSON that the API server has validated. What they make of an object that changes in nothing that
matters is equal to what they made before, so that a watch need not redraw for a heartbeat.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from api.claims import read_claim
from api.inventory import decode
from api.refusals import Refused
from cli.status.facts import (
    Claim,
    Class,
    Condition,
    Lease,
    Node,
    NodeInventory,
    Pod,
    Slice,
    SlicedDevice,
    Taint,
    TaintRule,
    Use,
)

Object = Mapping[str, Any]

_STANDARD = "resource.kubernetes.io"
_IMPLICIT_EXTENDED = "deviceclass.resource.kubernetes.io/"


def read_slice(obj: Object, driver: str) -> Slice | None:
    """A ResourceSlice; None for one of another driver."""
    spec = obj["spec"]
    if spec["driver"] != driver:
        return None
    pool = spec["pool"]
    devices = tuple(_device(device, driver) for device in spec.get("devices") or ())
    generation, count = pool.get("generation") or 0, pool.get("resourceSliceCount") or 1
    return Slice(obj["metadata"]["name"], spec.get("nodeName"), pool["name"], generation, devices, count)


def _device(device: Object, driver: str) -> SlicedDevice:
    attributes = device.get("attributes") or {}

    def text(*names: str) -> str | None:
        return next((attributes[name]["string"] for name in names if "string" in attributes.get(name, {})), None)

    capacity = device.get("capacity") or {}
    return SlicedDevice(
        name=device["name"],
        product=text("productName", f"{driver}/productName"),
        uuid=text("uuid", f"{driver}/uuid"),
        address=text(f"{_STANDARD}/pciBusID"),
        memory=(capacity.get("memory") or capacity.get(f"{driver}/memory") or {}).get("value"),
        taints=tuple(_taint(taint) for taint in device.get("taints") or ()),
    )


def _taint(taint: Object, rule: str | None = None) -> Taint:
    return Taint(taint["key"], taint.get("value") or "", taint["effect"], taint.get("timeAdded"), rule)


def read_rule(obj: Object) -> TaintRule:
    """A DeviceTaintRule of any version that has `driver`, `pool` and `device` in its selector."""
    name, spec = obj["metadata"]["name"], obj["spec"]
    selector = spec.get("deviceSelector")
    chosen = selector or {}
    return TaintRule(
        name=name,
        taint=_taint(spec["taint"], name),
        driver=chosen.get("driver"),
        pool=chosen.get("pool"),
        device=chosen.get("device"),
        matches=selector is not None,
    )


def read_status_claim(obj: Object, driver: str) -> Claim:
    """A ResourceClaim. Refused for what is none."""
    claim = read_claim(obj)
    requests = [
        asked
        for request in ((obj.get("spec") or {}).get("devices") or {}).get("requests") or ()
        for asked in ((request["exactly"],) if request.get("exactly") else request.get("firstAvailable") or ())
    ]
    return Claim(
        namespace=claim.ref.namespace,
        name=claim.ref.name,
        uid=claim.ref.uid,
        results=claim.results_of(driver),
        pods=claim.pods,
        others=len((obj.get("status") or {}).get("reservedFor") or ()) - len(claim.pods),
        allocated=claim.allocated,
        classes=frozenset(asked["deviceClassName"] for asked in requests if asked.get("deviceClassName")),
        names_driver=any(_names(asked.get("selectors"), driver) for asked in requests),
        deleting="deletionTimestamp" in obj["metadata"],
    )


def read_pod(obj: Object) -> Pod:
    """A Pod with the claims that it names, those made for it from templates, and the one made for its extended resources."""
    meta, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    made = {entry["name"]: entry.get("resourceClaimName") for entry in status.get("resourceClaimStatuses") or ()}
    names: dict[str, str] = {}
    for entry in spec.get("resourceClaims") or ():
        # A template that needs no claim for this pod has an entry without a name.
        name = entry.get("resourceClaimName") or made.get(entry["name"])
        if name:
            names[entry["name"]] = name
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    uses = [
        Use(container["name"], names[use["name"]], use.get("request") or None)
        for container in containers
        for use in (container.get("resources") or {}).get("claims") or ()
        if use["name"] in names
    ]
    extended = status.get("extendedResourceClaimStatus") or {}
    uses += [
        Use(mapping["containerName"], extended["resourceClaimName"], mapping["requestName"])
        for mapping in extended.get("requestMappings") or ()
    ]
    more = {extended["resourceClaimName"]} if extended.get("resourceClaimName") else set()
    wants = {
        resource
        for container in containers
        for resource in ((container.get("resources") or {}).get("limits") or {})
        if "/" in resource
    }
    return Pod(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        node=spec.get("nodeName") or None,
        phase=status.get("phase") or "",
        claims=frozenset({*names.values(), *more}),
        uses=tuple(uses),
        wants=frozenset(wants),
        unscheduled=_unscheduled(status),
        deleting="deletionTimestamp" in meta,
    )


def _unscheduled(status: Object) -> str | None:
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return condition.get("message") or condition.get("reason") or "no reason given"
    return None


def read_node(obj: Object) -> Node:
    """A Node."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    ready = next((each["status"] for each in conditions if each["type"] == "Ready"), "Unknown")
    known = {"True": True, "False": False}
    return Node(obj["metadata"]["name"], known.get(ready), bool((obj.get("spec") or {}).get("unschedulable")))


def read_inventory(obj: Object) -> NodeInventory:
    """A NodeInventory; one that cannot be read is told and not left out."""
    name = obj["metadata"]["name"]
    try:
        inventory, problem = decode(obj), ""
    except Refused as refused:
        inventory, problem = None, str(refused)
    status = obj.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return NodeInventory(
        name,
        inventory,
        tuple(
            Condition(
                *(str(each.get(field, "")) for field in ("type", "status", "reason", "message", "lastTransitionTime"))
            )
            for each in (conditions if isinstance(conditions, list) else ())
            if isinstance(each, dict)
        ),
        problem,
    )


def read_lease(obj: Object) -> Lease:
    """A Lease; its time by the clock of whoever renews it."""
    spec = obj.get("spec") or {}
    try:
        renewed = datetime.fromisoformat(spec.get("renewTime") or "")
    except ValueError:
        renewed = None
    if renewed is not None and renewed.tzinfo is None:
        renewed = None  # of no use without its zone
    return Lease(obj["metadata"]["name"], spec.get("holderIdentity") or "", renewed)


def read_class(obj: Object, driver: str) -> Class:
    """A DeviceClass, with the extended resources that stand for it (KEP-5004)."""
    name, spec = obj["metadata"]["name"], obj.get("spec") or {}
    named = spec.get("extendedResourceName")
    resources = {f"{_IMPLICIT_EXTENDED}{name}", *((named,) if named else ())}
    return Class(name, _names(spec.get("selectors"), driver), frozenset(resources))


def _names(selectors: Any, driver: str) -> bool:
    return any(driver in ((each.get("cel") or {}).get("expression") or "") for each in selectors or ())
