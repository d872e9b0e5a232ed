"""What `lanewise status` tells, as values."""

from dataclasses import dataclass, field
from enum import StrEnum

from cli.status.facts import Condition, Taint


class State(StrEnum):
    """How a device is, in a word."""

    FREE = "free"
    IN_USE = "in use"
    """A claim was allocated it, whether a pod of it still runs or not."""
    TAINTED = "tainted"
    """Nobody has it, and only pods that tolerate the taint get it."""
    UNPUBLISHED = "unpublished"
    """It is there and in no ResourceSlice, or in a pool of which a slice is missing, so no pod gets it."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What was asked for; None means all."""

    node: str | None = None
    namespace: str | None = None
    """Only its pods and claims are known then, so that nothing can be said to be free."""
    pod: str | None = None
    """In `namespace`."""


@dataclass(frozen=True, slots=True)
class HoldingPod:
    """A pod that a claim is reserved for."""

    namespace: str
    name: str
    uid: str
    phase: str | None
    """None: there is no such pod any more."""
    containers: tuple[str, ...] = ()
    """Those that get the device."""
    deleting: bool = False

    @property
    def state(self) -> str:
        """In a word."""
        if self.phase is None:
            return "Gone"
        return "Terminating" if self.deleting else self.phase or "Unknown"


@dataclass(frozen=True, slots=True)
class Hold:
    """A claim that was allocated a device."""

    namespace: str
    claim: str
    uid: str
    request: str
    """As allocated: `gpu`, or `gpu/large` for an alternative."""
    pods: tuple[HoldingPod, ...] = ()
    others: int = 0
    """Holders of the claim that are no pods."""
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU."""

    name: str
    pool: str
    published: bool
    product: str | None = None
    address: str | None = None
    uuid: str | None = None
    memory: str | None = None
    taints: tuple[Taint, ...] = ()
    ailments: tuple[str, ...] = ()
    """What is the matter with it, and what to do: a sentence each, by the node's plugin."""
    holds: tuple[Hold, ...] = ()
    admin: tuple[Hold, ...] = ()
    """Claims that look at it with adminAccess: they take it from nobody."""

    @property
    def tainted(self) -> bool:
        """Whether a taint keeps new pods away."""
        return any(taint.keeps_pods_away for taint in self.taints)

    @property
    def state(self) -> State:
        """In a word; the first that applies. Only where all claims are known can nobody be said to hold it."""
        if self.holds:
            return State.IN_USE
        if not self.published:
            return State.UNPUBLISHED
        return State.TAINTED if self.tainted else State.FREE


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that was found on the node and cannot be used."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class PluginInstance:
    """One process of the node plugin."""

    id: str
    registered: bool
    fresh: bool
    """Whether its Lease was renewed within the last 40 s by this computer's clock."""
    version: str
    lease: str
    renewed_at: str | None = field(compare=False)
    """RFC 3339. Two reports that differ in nothing else are equal: a renewal is no news."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node with GPUs, or with devices of ours."""

    name: str
    exists: bool = True
    """Whether there is a Node of this name."""
    ready: bool | None = None
    cordoned: bool = False
    driver: str | None = None
    cuda: str | None = None
    simulated: bool = False
    conditions: tuple[Condition, ...] = ()
    """`Published` and `Registered` of its NodeInventory."""
    instances: tuple[PluginInstance, ...] = ()
    devices: tuple[Device, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    problem: str = ""
    """Why the inventory tells nothing: there is none, or it cannot be read."""

    def count(self, state: State) -> int:
        """How many devices are so."""
        return sum(device.state is state for device in self.devices)

    @property
    def tainted(self) -> int:
        """How many devices have a taint that keeps new pods away, in use or not."""
        return sum(device.tainted for device in self.devices)


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod that waits for a claim."""

    namespace: str
    name: str
    why: str | None
    """In the scheduler's own words; None while it has said nothing."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A claim for our devices that has none, or an extended resource that a pod has not got."""

    namespace: str
    claim: str | None
    """None for an extended resource: its claim is made when the pod is scheduled."""
    asks: tuple[str, ...]
    """Device classes, or extended resources."""
    pods: tuple[WaitingPod, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """All of it."""

    driver: str
    scope: Scope
    nodes: tuple[NodeStatus, ...] = ()
    waiting: tuple[Waiting, ...] = ()

    @property
    def knows_all_pods(self) -> bool:
        """Whether a device that nobody is shown to hold is free."""
        return self.scope.namespace is None
