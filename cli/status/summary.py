"""From what the cluster says to a report: pure, so that the same facts always tell the same."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from api.inventory import LEASE_SECONDS, Instance
from api.names import gpu_device_name, pool_name
from api.quantities import of_bytes
from api.timestamps import time_text
from cli.status.facts import Claim, Class, Lease, Node, NodeInventory, Pod, Slice, SlicedDevice, TaintRule
from cli.status.holders import DeviceId, PodId, holds_of
from cli.status.report import (
    Device,
    Hold,
    LeftOut,
    NodeStatus,
    PluginInstance,
    Report,
    Scope,
    Waiting,
    WaitingPod,
)

Holds = Mapping[DeviceId, tuple[list[Hold], list[Hold]]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster at one moment, or as near to one as lists of several kinds can be."""

    slices: tuple[Slice, ...] = ()
    claims: tuple[Claim, ...] = ()
    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    inventories: tuple[NodeInventory, ...] = ()
    leases: tuple[Lease, ...] = ()
    classes: tuple[Class, ...] = ()
    rules: tuple[TaintRule, ...] = ()


def summarise(facts: Snapshot, *, driver: str, scope: Scope, now: datetime) -> Report:
    """The report for a scope; `facts` hold at least what lies in it."""
    pods: dict[PodId, Pod] = {(pod.namespace, pod.name): pod for pod in facts.pods}
    holds = holds_of(facts.claims, pods)
    nodes = [node for node in _nodes(facts, holds, driver, now) if scope.node in (None, node.name)]
    waiting = _waiting(facts, pods)
    if scope.namespace is not None:
        nodes = [_narrowed(node, scope) for node in nodes]
        nodes = [node for node in nodes if node.devices]
        waiting = [each for each in waiting if each.namespace == scope.namespace]
    if scope.pod is not None:
        waiting = [each for each in waiting if any(pod.name == scope.pod for pod in each.pods)]
    # A claim that waits is on no node.
    return Report(driver, scope, tuple(nodes), tuple(waiting) if scope.node is None else ())


def next_change(facts: Snapshot, now: datetime) -> float | None:
    """Seconds until a Lease that is fresh now becomes stale if nothing happens; None when there is none."""
    ends = [lease.renewed + timedelta(seconds=LEASE_SECONDS) for lease in facts.leases if lease.renewed]
    return min(((end - now).total_seconds() for end in ends if end > now), default=None)


def _nodes(facts: Snapshot, holds: Holds, driver: str, now: datetime) -> list[NodeStatus]:
    inventories = {each.node: each for each in facts.inventories}
    known = {node.name: node for node in facts.nodes}
    leases = {lease.name: lease for lease in facts.leases}
    published = _published(facts.slices)
    by_node: dict[str, dict[DeviceId, SlicedDevice]] = {}
    for (node, pool), devices in published.items():
        by_node.setdefault(node, {}).update({(pool, device.name): device for device in devices})
    where = {pool: node for node, pool in published}

    def node_of(pool: str) -> str:
        # A pool that is not published is one of ours, named for its node, or it stands for itself.
        return where.get(pool) or pool.removesuffix(f"/{driver}")

    names = {*inventories, *by_node, *(node_of(pool) for pool, _ in holds)}
    return [
        _node(
            name,
            known.get(name),
            inventories.get(name),
            by_node.get(name, {}),
            {device: found for device, found in holds.items() if node_of(device[0]) == name},
            leases,
            facts.rules,
            driver,
            now,
        )
        for name in sorted(names)
    ]


def _published(slices: Iterable[Slice]) -> dict[tuple[str, str], list[SlicedDevice]]:
    """The devices of each node and pool, of the pool's newest generation only: the scheduler ignores older ones, and the pool
    while not all slices of the newest are there."""
    newest: dict[str, int] = {}
    slices = tuple(slices)
    for each in slices:
        newest[each.pool] = max(newest.get(each.pool, 0), each.generation)
    there = Counter(each.pool for each in slices if each.generation == newest[each.pool])
    found: dict[tuple[str, str], list[SlicedDevice]] = {}
    for each in slices:
        if each.generation == newest[each.pool] and there[each.pool] >= each.count:
            found.setdefault((each.node or each.pool, each.pool), []).extend(each.devices)
    return found


def _node(
    name: str,
    node: Node | None,
    found: NodeInventory | None,
    published: Mapping[DeviceId, SlicedDevice],
    holds: Holds,
    leases: Mapping[str, Lease],
    rules: tuple[TaintRule, ...],
    driver: str,
    now: datetime,
) -> NodeStatus:
    status = NodeStatus(
        name,
        exists=node is not None,
        ready=node.ready if node else None,
        cordoned=node is not None and node.cordoned,
        problem="" if found else "no plugin has reported it: there is no NodeInventory of this name",
    )
    listed: dict[DeviceId, Device] = {}
    if found is not None:
        status = replace(status, conditions=found.conditions, problem=found.problem)
        if found.inventory is not None:
            machine = found.inventory.machine
            status = replace(
                status,
                driver=machine.driver.version,
                cuda=machine.driver.cuda_version,
                simulated=machine.simulated,
                instances=tuple(_instance(each, name, leases, now) for each in found.inventory.instances),
                left_out=tuple(LeftOut(item.what, item.why) for item in machine.left_out),
            )
            for gpu in machine.gpus:
                device_name = gpu_device_name(gpu.place.address)
                listed[pool_name(name, driver), device_name] = Device(
                    name=device_name,
                    pool=pool_name(name, driver),
                    published=False,
                    product=gpu.product_name,
                    address=str(gpu.place.address),
                    uuid=gpu.uuid,
                    memory=of_bytes(gpu.memory_bytes) if gpu.memory_bytes is not None else None,
                    ailments=tuple(ailment.sentence for ailment in gpu.ailments),
                )
    devices = []
    for pool, device_name in dict.fromkeys((*listed, *published, *sorted(holds))):
        key = (pool, device_name)
        device = listed.get(key) or Device(device_name, pool, published=False)
        sliced = published.get(key)
        if sliced is not None:
            device = _as_published(device, sliced, rules, driver)
        holders, watchers = holds.get(key, ([], []))
        devices.append(replace(device, holds=tuple(holders), admin=tuple(watchers)))
    return replace(status, devices=tuple(devices))


def _as_published(device: Device, sliced: SlicedDevice, rules: Iterable[TaintRule], driver: str) -> Device:
    """What pods are chosen by is what was published, wherever the inventory says something newer."""
    return replace(
        device,
        published=True,
        product=sliced.product or device.product,
        address=sliced.address or device.address,
        uuid=sliced.uuid or device.uuid,
        memory=sliced.memory or device.memory,
        taints=(*sliced.taints, *(rule.taint for rule in rules if rule.covers(driver, device.pool, device.name))),
    )


def _instance(instance: Instance, node: str, leases: Mapping[str, Lease], now: datetime) -> PluginInstance:
    lease = leases.get(instance.lease)
    # Another node's renewals say nothing of this one (controller.signs).
    renewed = lease.renewed if lease is not None and lease.holder == node else None
    return PluginInstance(
        id=instance.id,
        registered=instance.registered,
        fresh=renewed is not None and now < renewed + timedelta(seconds=LEASE_SECONDS),
        version=instance.version,
        lease=instance.lease,
        renewed_at=time_text(renewed.astimezone(UTC)) if renewed is not None else None,
    )


def _narrowed(node: NodeStatus, scope: Scope) -> NodeStatus:
    """Only the devices that the scope's pods and claims have."""
    devices = []
    for device in node.devices:
        holds = tuple(hold for hold in device.holds if _is_in(hold, scope))
        admin = tuple(hold for hold in device.admin if _is_in(hold, scope))
        if holds or admin:
            devices.append(replace(device, holds=holds, admin=admin))
    return replace(node, devices=tuple(devices))


def _is_in(hold: Hold, scope: Scope) -> bool:
    if hold.namespace != scope.namespace:
        return False
    return scope.pod is None or any(pod.name == scope.pod for pod in hold.pods)


def _waiting(facts: Snapshot, pods: Mapping[PodId, Pod]) -> list[Waiting]:
    """Claims without an allocation that ask for a class of ours, and pods without a node that ask for an extended resource.

    Which driver will serve a claim nobody knows before the scheduler has chosen; a class is ours when a selector of it, or
    of the claim, names our driver.
    """
    ours = {each.name for each in facts.classes if each.names_driver}
    resources = {resource for each in facts.classes if each.names_driver for resource in each.resources}
    found = [
        Waiting(claim.namespace, claim.name, tuple(sorted(claim.classes)), _waiting_pods(claim, pods))
        for claim in facts.claims
        if not claim.allocated and not claim.deleting and (claim.names_driver or claim.classes & ours)
    ]
    for pod in facts.pods:
        wanted = sorted(pod.wants & resources)
        if wanted and pod.unscheduled is not None and not pod.over:
            found.append(
                Waiting(pod.namespace, None, tuple(wanted), (WaitingPod(pod.namespace, pod.name, pod.unscheduled),))
            )
    return sorted(found, key=lambda each: (each.namespace, each.claim or "", [pod.name for pod in each.pods]))


def _waiting_pods(claim: Claim, pods: Mapping[PodId, Pod]) -> tuple[WaitingPod, ...]:
    return tuple(
        WaitingPod(pod.namespace, pod.name, pod.unscheduled)
        for (namespace, _), pod in sorted(pods.items())
        if namespace == claim.namespace and claim.name in pod.claims and not pod.over
    )
