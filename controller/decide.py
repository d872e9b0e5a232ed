"""What a node's slices should be at this moment, and the sentence that says why."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from api.hardware import LeftOut
from api.inventory import Inventory
from api.names import API_GROUP
from controller.conflicts import ForeignSlice, rival_of
from controller.device import Taint
from controller.liveness import (
    Alive,
    Dead,
    Hold,
    NodeSigns,
    Publish,
    StayAway,
    TaintAll,
    Unsure,
    Withdraw,
    health_of,
    judge,
)
from controller.pool import Pool
from controller.slices import slices_of
from controller.taints import Effects, sentence, taints_of
from controller.validate import faults_of_pool

UNREACHABLE = f"{API_GROUP}/unreachable"
"""Key of the taint on devices whose plugin is dead; its value is `silent` or `unregistered`."""

WHY_DEAD = {
    "silent": "the plugin does not renew its Lease",
    "unregistered": "the kubelet has no plugin registered",
}


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a decision on one node rests on."""

    node: str
    node_uid: str | None
    """UID of the Node object, None where there is none."""
    inventory: Inventory | None = None
    pool: Pool = field(default_factory=Pool)
    """The inventory's devices."""
    fault: str = ""
    """What is wrong with the NodeInventory, if it cannot be read."""
    allocatable: Mapping[str, str] | None = None
    """Of the Node, `nvidia.com/*` only."""
    foreign: tuple[ForeignSlice, ...] = ()
    signs: NodeSigns = field(default_factory=NodeSigns)


@dataclass(frozen=True, slots=True)
class Decision:
    """What should be, and what to tell of it."""

    slices: tuple[dict[str, Any], ...] | None
    """Desired specs; empty for none, None to leave what is there."""
    published: bool
    """Whether pods can be put on the devices: the condition's status."""
    reason: str
    message: str
    health: Alive | Unsure | Dead
    devices: int = 0
    """How many are in the slices, tainted ones included."""
    ailing: int = 0
    """Something is the matter with so many of them."""

    @property
    def look_again(self) -> float | None:
        """When time alone may change it (monotonic seconds)."""
        return None if isinstance(self.health, Dead) else self.health.until


def decide(
    facts: Facts,
    now: float,
    *,
    driver: str,
    stale_seconds: float,
    allow_shared_ownership: bool,
    effects: Effects | None = None,
) -> Decision:
    """The rules in order: what is not ours to publish goes away, then liveness decides. `effects`: see `controller.taints`."""
    effects = effects or {}
    health = health_of(facts.signs.instances, now, stale_seconds)
    gone = _why_gone(facts, driver=driver, allow_shared_ownership=allow_shared_ownership, effects=effects)
    if gone is not None:
        return Decision((), published=False, reason=gone[0], message=gone[1], health=health)
    devices = facts.pool.devices
    count = f"{len(devices)} GPU{'' if len(devices) == 1 else 's'}"
    told = f"{sentence(devices, effects)}{_left_out_phrase(facts.pool.left_out)}"
    ailing = sum(bool(device.ailments) for device in devices)

    def slices(*taints: Taint) -> tuple[dict[str, Any], ...]:
        return slices_of(
            devices, node=facts.node, driver=driver, taints=lambda device: taints_of(device, effects, taints)
        )

    match judge(facts.signs, health):
        case Publish():
            return Decision(
                slices(),
                published=True,
                reason="Published",
                message=f"{count} published{told}",
                health=health,
                devices=len(devices),
                ailing=ailing,
            )
        case TaintAll(why):
            return Decision(
                slices(Taint(UNREACHABLE, why, "NoSchedule")),
                published=False,
                reason="NoLiveInstance",
                message=f"{count} tainted NoSchedule: {WHY_DEAD[why]}; running pods are not touched",
                health=health,
                devices=len(devices),
                ailing=ailing,
            )
        case Withdraw():
            message = (
                "the slices were deleted, as the kubelet does when it starts or has lost the plugin; "
                "they come back with the plugin's next sign of life"
            )
            return Decision((), published=False, reason="Withdrawn", message=message, health=health)
        case StayAway(why):
            message = f"nothing is published: {WHY_DEAD[why]}"
            return Decision((), published=False, reason="NoLiveInstance", message=message, health=health)
        case Hold():
            message = "left as it is until the plugin renews its Lease or has been silent for too long"
            return Decision(None, published=False, reason="Waiting", message=message, health=health)


def _why_gone(facts: Facts, *, driver: str, allow_shared_ownership: bool, effects: Effects) -> tuple[str, str] | None:
    """Reason and message where nothing may be published, whoever is alive."""
    if facts.fault:
        return "Invalid", facts.fault
    if facts.inventory is None:
        return "NoInventory", "no plugin has reported what this node has"
    if facts.node_uid is None:
        return "NoNode", "there is no Node of this name"
    if facts.inventory.node_uid not in (None, facts.node_uid):
        return "NoNode", "the inventory belongs to an earlier Node of this name; the plugin writes it anew"
    if not facts.pool.devices:
        return "NoDevices", f"no GPU to publish{_left_out_phrase(facts.pool.left_out)}"
    if not allow_shared_ownership:
        rival = rival_of(facts.inventory.machine.gpus, facts.allocatable or {}, facts.foreign, node=facts.node)
        if rival is not None:
            return rival.reason, rival.message
    specs = slices_of(
        facts.pool.devices, node=facts.node, driver=driver, taints=lambda device: taints_of(device, effects)
    )
    faults = faults_of_pool(specs)
    return ("Invalid", "; ".join(faults)) if faults else None


def _left_out_phrase(left_out: tuple[LeftOut, ...]) -> str:
    return "".join(f"; {item.what} left out: {item.why}" for item in left_out)
