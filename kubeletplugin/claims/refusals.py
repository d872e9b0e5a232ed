"""Why a claim is not prepared or unprepared, in words that a user can act on.

Each reason stands alone in its first line: which claim, which device, on which node. They reach the user as an Event on the
claim and its pods, and the kubelet as the answer for this claim. The name of the kind is the Event's reason, and what calls
are counted by.
"""

from dataclasses import dataclass

from api.names import ClaimRef
from api.pci import PciAddress
from api.refusals import Reason

AGAIN = "the kubelet tries again by itself"


@dataclass(frozen=True, slots=True)
class Silent:
    """The API server gives no answer about the claim."""

    claim: ClaimRef
    why: Reason

    @property
    def what(self) -> str:
        return f"claim {self.claim}: it could not be read from the API server: {self.why.what}"

    @property
    def remedy(self) -> str:
        return f"{AGAIN}; {self.why.remedy}"


@dataclass(frozen=True, slots=True)
class Gone:
    """The claim was deleted."""

    claim: ClaimRef

    @property
    def what(self) -> str:
        return f"claim {self.claim}: it exists no more"

    @property
    def remedy(self) -> str:
        return "nothing need be done; a pod that still names it waits until a claim of this name is created"


@dataclass(frozen=True, slots=True)
class Replaced:
    """A new claim has the name."""

    claim: ClaimRef
    uid_now: str

    @property
    def what(self) -> str:
        return f"claim {self.claim}: it was deleted and created anew, its UID is {self.uid_now} and no longer {self.claim.uid}"

    @property
    def remedy(self) -> str:
        return f"{AGAIN}, with the new claim once the old one is released"


@dataclass(frozen=True, slots=True)
class NotAllocated:
    """The scheduler has given the claim nothing, or taken it back."""

    claim: ClaimRef

    @property
    def what(self) -> str:
        return f"claim {self.claim}: no devices are allocated to it"

    @property
    def remedy(self) -> str:
        return f"the scheduler allocates them for the next pod that uses it; {AGAIN}"


@dataclass(frozen=True, slots=True)
class UnknownParameters:
    """An opaque configuration that this driver does not understand; strict, for users' typos come this way (Case A1)."""

    claim: ClaimRef
    index: int
    """In `status.allocation.devices.config`."""
    driver: str
    kind: str
    from_class: bool

    @property
    def what(self) -> str:
        return f"claim {self.claim}: config[{self.index}].parameters: {self.kind} is nothing that {self.driver} understands"

    @property
    def remedy(self) -> str:
        where = "DeviceClass that the claim names, and" if self.from_class else "claim (or its template), and"
        return f"take the config for {self.driver} out of the {where} create the claim anew"


@dataclass(frozen=True, slots=True)
class OtherPool:
    """A device of our driver, but another node's."""

    claim: ClaimRef
    device: str
    pool: str
    node: str

    @property
    def what(self) -> str:
        return f"claim {self.claim}: {self.device} belongs to pool {self.pool}, which is not of {self.node}"

    @property
    def remedy(self) -> str:
        return "delete the pod; a new one goes to the node whose device the claim has"


@dataclass(frozen=True, slots=True)
class NoMachine:
    """The hardware is not known yet."""

    claim: ClaimRef
    node: str
    why: str

    @property
    def what(self) -> str:
        return f"claim {self.claim}: the GPUs of {self.node} are not known yet: {self.why}"

    @property
    def remedy(self) -> str:
        return f"{AGAIN}; nothing need be done if the GPU driver of {self.node} is still starting"


@dataclass(frozen=True, slots=True)
class LeftOutDevice:
    """The device is there but cannot be used."""

    claim: ClaimRef
    device: str
    node: str
    why: str

    @property
    def what(self) -> str:
        return f"claim {self.claim}: {self.device} on {self.node} cannot be used: {self.why}"

    @property
    def remedy(self) -> str:
        return f"{AGAIN} once that is mended; or delete the pod and the claim, so that another device is allocated"


@dataclass(frozen=True, slots=True)
class LostDevice:
    """The device was there earlier in this boot and does not answer now. Other ailments are no reason to refuse: who tolerates
    the taint wants the device as it is."""

    claim: ClaimRef
    device: str
    node: str
    why: str
    since: str
    cure: str

    @property
    def what(self) -> str:
        return f"claim {self.claim}: {self.device} on {self.node} is lost since {self.since}: {self.why}"

    @property
    def remedy(self) -> str:
        return f"delete the pod and the claim, so that another device is allocated. On {self.node}: {self.cure}"


@dataclass(frozen=True, slots=True)
class UnknownDevice:
    """Nothing of that name is in the machine."""

    claim: ClaimRef
    device: str
    node: str

    @property
    def what(self) -> str:
        return f"claim {self.claim}: {self.node} has no {self.device} now"

    @property
    def remedy(self) -> str:
        return (
            f"look with: kubectl get nodeinventory {self.node} -o yaml; delete the pod and the claim for another device"
        )


@dataclass(frozen=True, slots=True)
class InMigMode:
    """A whole GPU was allocated, but the card is cut into MIG slices."""

    claim: ClaimRef
    device: str
    node: str
    address: PciAddress

    @property
    def what(self) -> str:
        return f"claim {self.claim}: {self.device} on {self.node} is in MIG mode and cannot be given out whole"

    @property
    def remedy(self) -> str:
        return f"on {self.node}: nvidia-smi -i {self.address} -mig 0; {AGAIN}"


@dataclass(frozen=True, slots=True)
class Held:
    """Another claim has the device (Case H3: the driver is the last line of defence)."""

    claim: ClaimRef
    device: str
    node: str
    holder: ClaimRef

    @property
    def what(self) -> str:
        return f"claim {self.claim}: {self.device} on {self.node} is still held by claim {self.holder}"

    @property
    def remedy(self) -> str:
        see = f"kubectl -n {self.holder.namespace} describe resourceclaim {self.holder.name}"
        return f"{AGAIN}; to see who keeps it: {see}"


@dataclass(frozen=True, slots=True)
class Changing:
    """Another claim is taking or leaving the device at this moment."""

    claim: ClaimRef
    device: str
    node: str
    holder_uid: str

    @property
    def what(self) -> str:
        return f"claim {self.claim}: {self.device} on {self.node} is being taken or left by the claim of UID {self.holder_uid}"

    @property
    def remedy(self) -> str:
        return AGAIN


@dataclass(frozen=True, slots=True)
class HeldUnreadably:
    """The device is held by a claim that we can say no more about."""

    claim: ClaimRef
    device: str
    node: str
    holder_uid: str

    @property
    def what(self) -> str:
        return (
            f"claim {self.claim}: {self.device} on {self.node} is still held by the claim of UID {self.holder_uid}, "
            "whose record cannot be read"
        )

    @property
    def remedy(self) -> str:
        return (
            f"{AGAIN}; the device is free when the pod of that claim is gone from {self.node}, or {self.node} restarts"
        )


@dataclass(frozen=True, slots=True)
class NoHold:
    """Something that is no hold stands where one must be."""

    claim: ClaimRef
    path: str

    @property
    def what(self) -> str:
        return f"claim {self.claim}: {self.path} is no link of this driver"

    @property
    def remedy(self) -> str:
        return f"remove {self.path}; {AGAIN}"


@dataclass(frozen=True, slots=True)
class PreparedOtherwise:
    """The claim got other devices while its earlier ones are not released here."""

    claim: ClaimRef
    node: str
    before: tuple[str, ...]
    now: tuple[str, ...]

    @property
    def what(self) -> str:
        before, now = ", ".join(self.before) or "nothing", ", ".join(self.now) or "nothing"
        return f"claim {self.claim}: it is allocated {now}, but {self.node} still has it prepared with {before}"

    @property
    def remedy(self) -> str:
        return f"{AGAIN}; deleting the pod releases what is prepared"


@dataclass(frozen=True, slots=True)
class NewerRecord:
    """A later version of the plugin prepared the claim."""

    claim: ClaimRef
    node: str
    format: int

    @property
    def what(self) -> str:
        return f"claim {self.claim}: a newer version of the plugin prepared it on {self.node} (record format {self.format})"

    @property
    def remedy(self) -> str:
        return f"install that version on {self.node} again, or delete the pod"


@dataclass(frozen=True, slots=True)
class Busy:
    """Another call for this claim does not come to its end."""

    claim: ClaimRef
    node: str
    seconds: float

    @property
    def what(self) -> str:
        return f"claim {self.claim}: an earlier call for it on {self.node} has been at work for more than {self.seconds:g} s"

    @property
    def remedy(self) -> str:
        return AGAIN


@dataclass(frozen=True, slots=True)
class Late:
    """The claim was released after this call had come in (Case G6)."""

    claim: ClaimRef

    @property
    def what(self) -> str:
        return f"claim {self.claim}: it was released while this call waited"

    @property
    def remedy(self) -> str:
        return "nothing need be done; if a pod needs it, the kubelet asks again"


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Nobody waits for the answer any more."""

    claim: ClaimRef

    @property
    def what(self) -> str:
        return f"claim {self.claim}: the kubelet has given up this call"

    @property
    def remedy(self) -> str:
        return "nothing need be done; if a pod needs it, the kubelet asks again"


@dataclass(frozen=True, slots=True)
class DiskTrouble:
    """The disk does not take what must be kept."""

    claim: ClaimRef
    node: str
    path: str
    problem: str

    @property
    def what(self) -> str:
        return f"claim {self.claim}: {self.path} on {self.node}: {self.problem}"

    @property
    def remedy(self) -> str:
        return f"mend the disk of {self.node} (space, inodes, mounted read-only?); {AGAIN}"


@dataclass(frozen=True, slots=True)
class BadUid:
    """Not a UID that Kubernetes gives."""

    uid: str

    @property
    def what(self) -> str:
        return f"claim UID {self.uid[:64]!r}: none that Kubernetes gives"

    @property
    def remedy(self) -> str:
        return "look at who called the plugin; the kubelet does not"


@dataclass(frozen=True, slots=True)
class Defect:
    """A mistake of ours."""

    claim: ClaimRef
    node: str
    problem: str

    @property
    def what(self) -> str:
        return f"claim {self.claim}: internal error of the plugin on {self.node}: {self.problem}"

    @property
    def remedy(self) -> str:
        return f"{AGAIN}; if it lasts, write a bug report with what the plugin's log says of {self.claim.uid}"


PASSING = (Late, Cancelled, Busy, Changing)
"""Reasons that are over by the time anybody reads of them: they go to the log, not into an Event."""
