"""What a status is told from: the few fields of the cluster's objects that it needs.

How they are read is `cli.status.reading`.
"""

from dataclasses import dataclass
from datetime import datetime

from api.claims import PodRef, Result
from api.inventory import Inventory


@dataclass(frozen=True, slots=True)
class Taint:
    """Why pods should not be put on a device."""

    key: str
    value: str
    effect: str
    since: str | None = None
    """RFC 3339; of a rule None, since each device has its own."""
    rule: str | None = None
    """The DeviceTaintRule that it comes from; None for one in the slice."""

    @property
    def text(self) -> str:
        """As people write it."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"

    @property
    def keeps_pods_away(self) -> bool:
        """`None` is told and does nothing (resource.k8s.io/v1, DeviceTaintEffect)."""
        return self.effect != "None"


@dataclass(frozen=True, slots=True)
class SlicedDevice:
    """A device in a ResourceSlice."""

    name: str
    product: str | None = None
    uuid: str | None = None
    address: str | None = None
    memory: str | None = None
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class Slice:
    """A ResourceSlice of our driver."""

    name: str
    node: str | None
    pool: str
    generation: int
    devices: tuple[SlicedDevice, ...] = ()
    count: int = 1
    """How many slices the pool has in this generation."""


@dataclass(frozen=True, slots=True)
class TaintRule:
    """A DeviceTaintRule: an administrator's taint on devices that a selector names."""

    name: str
    taint: Taint
    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    matches: bool = True
    """False without a selector, which matches nothing; an empty one matches all (resource.k8s.io/v1, DeviceTaintRuleSpec)."""

    def covers(self, driver: str, pool: str, device: str) -> bool:
        """Whether it taints this device."""
        asked = ((self.driver, driver), (self.pool, pool), (self.device, device))
        return self.matches and all(wanted in (None, found) for wanted, found in asked)


@dataclass(frozen=True, slots=True)
class Claim:
    """A ResourceClaim."""

    namespace: str
    name: str
    uid: str
    results: tuple[Result, ...] = ()
    """Of our driver."""
    pods: tuple[PodRef, ...] = ()
    """In `status.reservedFor`."""
    others: int = 0
    """Entries of `status.reservedFor` that are no pods."""
    allocated: bool = False
    classes: frozenset[str] = frozenset()
    """The device classes that its requests name."""
    names_driver: bool = False
    """Whether a selector of its own names our driver."""
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class Use:
    """A container that uses a claim, or one request of it."""

    container: str
    claim: str
    request: str | None = None


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, as far as claims are concerned."""

    namespace: str
    name: str
    uid: str
    node: str | None = None
    phase: str = ""
    claims: frozenset[str] = frozenset()
    """Names of the ResourceClaims that it uses, whichever way it came by them."""
    uses: tuple[Use, ...] = ()
    wants: frozenset[str] = frozenset()
    """Extended resources that its containers ask for."""
    unscheduled: str | None = None
    """Why the scheduler gave it no node, in its own words; None when it has said no such thing."""
    deleting: bool = False

    @property
    def over(self) -> bool:
        """Whether its containers have all ended for good."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Node:
    """A Node."""

    name: str
    ready: bool | None = None
    """None while its condition Ready is Unknown: the kubelet is silent."""
    cordoned: bool = False


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a NodeInventory."""

    type: str
    status: str
    reason: str
    message: str
    since: str


@dataclass(frozen=True, slots=True)
class NodeInventory:
    """A NodeInventory, or why it cannot be read."""

    node: str
    inventory: Inventory | None
    conditions: tuple[Condition, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Lease:
    """A Lease in the plugins' namespace."""

    name: str
    holder: str
    renewed: datetime | None


@dataclass(frozen=True, slots=True)
class Class:
    """A DeviceClass."""

    name: str
    names_driver: bool
    """Whether a selector of it names our driver."""
    resources: frozenset[str]
    """Extended resources that stand for it."""
