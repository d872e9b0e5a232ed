"""Which node a pending pod gets, and which devices its claims; or why it has to wait.

Source: Kubernetes 1.37.2, pkg/scheduler/framework/plugins/dynamicresources: PreFilter and Filter. Nodes are not scored:
of those that fit, the one with the fewest pods is taken, then the first by name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from api.refusals import Refused
from cli.sandbox import extended, fits
from controller.allocator import Allocated, Question, allocate, holders
from controller.allocator.cel import Compiler
from controller.allocator.nodes import matches
from controller.allocator.question import Object, reference

MAX_RESERVATIONS = 256
"""So many pods may use one claim (resource.k8s.io/v1, ResourceClaimReservedForMaxSize)."""


@dataclass(frozen=True, slots=True)
class World:
    """What a scheduler knows; claims and classes by name, claims as namespace/name."""

    nodes: tuple[Object, ...]
    pods: tuple[Object, ...]
    claims: Mapping[str, Object]
    classes: Mapping[str, Object]
    slices: tuple[Object, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the pod goes, and what has to be written for that."""

    node: str
    claims: tuple[Object, ...]
    """Claims that the pod is to be entered in as a user."""
    allocations: Mapping[str, Object]
    """The allocations to be written, by claim as namespace/name."""
    special: extended.Special | None = None
    """A claim to be made first."""
    special_allocation: Object | None = None


@dataclass(frozen=True, slots=True)
class Waits:
    """Why the pod stays pending."""

    message: str
    reason: str = "Unschedulable"
    """As in the condition PodScheduled: Unschedulable, or SchedulerError where no node was asked to the end."""


@dataclass(frozen=True, slots=True)
class Stale:
    """An earlier try left this claim for the pod's extended resources; it has to be deleted before another."""

    claim: Object


def place(pod: Object, world: World, compiler: Compiler) -> Placed | Waits | Stale:
    """The decision for one pod. It is final when `world` is up to date; nothing is written here."""
    field = fits.not_understood(pod)
    if field:
        return Waits(f"{field} is not understood by the sandbox's scheduler", "SchedulerError")
    claims = _claims_of(pod, world)
    if isinstance(claims, Waits):
        return claims
    left = extended.made_for(pod, world.claims.values())
    if left is not None:
        return Stale(left)
    found: dict[str, list[str]] = {}
    for node in _by_load(world):
        try:
            answer = _on_node(pod, node, claims, world, compiler)
        except Refused as refused:
            return Waits(f"{refused.reason.what} ({refused.reason.remedy})", "SchedulerError")
        if isinstance(answer, Placed):
            return answer
        found.setdefault(answer, []).append(node["metadata"]["name"])
    return Waits(f"0/{len(world.nodes)} nodes are available{_told(found)}")


def _told(found: Mapping[str, list[str]]) -> str:
    if not found:
        return "."
    shown = (f"{', '.join(names[:3])}{' ...' * (len(names) > 3)}: {why}" for why, names in found.items())
    return ": " + "; ".join(shown) + "."


def _by_load(world: World) -> list[Object]:
    counts: dict[str, int] = {}
    for pod in world.pods:
        name = pod["spec"].get("nodeName") or ""
        counts[name] = counts.get(name, 0) + 1
    return sorted(world.nodes, key=lambda node: (counts.get(node["metadata"]["name"], 0), node["metadata"]["name"]))


def _claims_of(pod: Object, world: World) -> tuple[Object, ...] | Waits:
    """The pod's claims in its order, each fit to be used; or what is the matter with one."""
    found: list[Object] = []
    meta = pod["metadata"]
    made = {each["name"]: each for each in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
    for entry in pod["spec"].get("resourceClaims") or ():
        name = entry.get("resourceClaimName")
        if not name:
            if entry["name"] not in made:
                return Waits(f"the claim {entry['name']} of the pod has not been made from its template yet")
            name = made[entry["name"]].get("resourceClaimName")
            if not name:
                continue  # the claim turned out not to be needed
        claim = world.claims.get(f"{meta['namespace']}/{name}")
        if claim is None:
            return Waits(f'resourceclaim "{name}" not found')
        problem = _unfit(claim, pod, from_template=not entry.get("resourceClaimName"))
        if problem:
            return Waits(problem)
        found.append(claim)
    return tuple({reference(claim): claim for claim in found}.values())


def _unfit(claim: Object, pod: Object, *, from_template: bool) -> str:
    meta, status = claim["metadata"], claim.get("status") or {}
    uid = pod["metadata"]["uid"]
    owners = meta.get("ownerReferences") or ()
    if meta.get("deletionTimestamp"):
        return f'resourceclaim "{meta["name"]}" is being deleted'
    if from_template and not any(owner.get("uid") == uid and owner.get("controller") for owner in owners):
        return f"resourceclaim {reference(claim)} was not made for this pod"
    users = status.get("reservedFor") or ()
    if len(users) >= MAX_RESERVATIONS and all(user.get("uid") != uid for user in users):
        return f"resourceclaim {reference(claim)} is used by {MAX_RESERVATIONS} others, which is the limit"
    return ""


def _on_node(pod: Object, node: Object, claims: tuple[Object, ...], world: World, compiler: Compiler) -> Placed | str:
    """The pod on this node, or why not. Refused where further nodes need not be asked."""
    name = node["metadata"]["name"]
    asked = [resource for resource, amount in fits.requests(pod).items() if amount]
    by_resource = extended.classes_by_resource(world.classes.values())
    by_devices = extended.by_devices(asked, node, by_resource)
    others = [other for other in world.pods if other["spec"].get("nodeName") == name and not _ended(other)]
    why = fits.why_not(pod, node, others, by_devices)
    if why:
        return why
    for claim in claims:
        selector = _allocation(claim).get("nodeSelector")
        if selector is not None and not matches(node, selector, f"claim {reference(claim)}"):
            return f"claim {reference(claim)} is allocated on another node"
    to_allocate = [claim for claim in claims if not _allocation(claim)]
    special = extended.special(pod, by_devices, by_resource) if by_devices else None
    if special is not None:
        meta = {**special.claim["metadata"], "name": "<extended-resources>"}
        to_allocate.append({**special.claim, "metadata": meta})
    if not to_allocate:
        return Placed(name, claims, {})
    held = holders(world.claims.values())
    question = Question(node, world.slices, world.classes, tuple(to_allocate), held)
    answer = allocate(question, compiler=compiler)
    if not isinstance(answer, Allocated):
        return answer.why
    allocations = {reference(claim): found for claim, found in zip(to_allocate, answer.allocations, strict=True)}
    if special is None:
        return Placed(name, claims, allocations)
    found = allocations.pop(reference(to_allocate[-1]))
    return Placed(name, claims, allocations, special, found)


def _allocation(claim: Object) -> Object:
    return (claim.get("status") or {}).get("allocation") or {}


def _ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def waiting(pods: Iterable[Object]) -> list[Object]:
    """The pods that want a node from the default scheduler: by priority, then by age, then by name."""
    found = [
        pod
        for pod in pods
        if not pod["spec"].get("nodeName")
        and not pod["spec"].get("schedulingGates")
        and pod["spec"].get("schedulerName") in (None, "", "default-scheduler")
        and not pod["metadata"].get("deletionTimestamp")
        and not _ended(pod)
    ]
    return sorted(
        found,
        key=lambda pod: (
            -int(pod["spec"].get("priority") or 0),
            str(pod["metadata"].get("creationTimestamp", "")),
            reference(pod),
        ),
    )
