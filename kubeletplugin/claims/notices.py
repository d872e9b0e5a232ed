"""What happened to prepared claims that nobody asked about.

Found by `kubeletplugin.claims.recovery`, and told on the claim in the same form as a refusal.
"""

from dataclasses import dataclass

from api.names import ClaimRef


@dataclass(frozen=True, slots=True)
class RecordDamaged:
    """A record could not be read and was set aside (Case G7)."""

    claim: ClaimRef
    node: str
    path: str
    problem: str

    @property
    def what(self) -> str:
        return f"claim {self.claim}: its record on {self.node} {self.problem}; it was moved to {self.path}"

    @property
    def remedy(self) -> str:
        return "nothing need be done: the claim keeps its devices until its pod is gone"


@dataclass(frozen=True, slots=True)
class DeviceLost:
    """A prepared device is not there any more, or does not answer (Case G7)."""

    claim: ClaimRef
    node: str
    devices: tuple[str, ...]

    @property
    def what(self) -> str:
        return f"claim {self.claim}: {', '.join(self.devices)} on {self.node} is lost while the claim is prepared"

    @property
    def remedy(self) -> str:
        see = f"kubectl get nodeinventory {self.node} -o yaml"
        return f"delete the pod and the claim for another device; to see what {self.node} has: {see}"


@dataclass(frozen=True, slots=True)
class DeviceAiling:
    """A prepared device is there, and cannot be relied on."""

    claim: ClaimRef
    device: str
    node: str
    why: str
    cure: str

    @property
    def what(self) -> str:
        return f"claim {self.claim}: {self.device} on {self.node} is ailing while the claim is prepared: {self.why}"

    @property
    def remedy(self) -> str:
        return f"look at what the pod computes; for another device delete the pod and the claim. On {self.node}: {self.cure}"


@dataclass(frozen=True, slots=True)
class ReleasedUnasked:
    """We unprepared the claim ourselves, because nobody else will (dra-driver-nvidia-gpu #1278)."""

    claim: ClaimRef
    node: str
    devices: tuple[str, ...]
    why: str

    @property
    def what(self) -> str:
        devices = ", ".join(self.devices)
        return (
            f"claim {self.claim}: {self.why}, and the kubelet never released it; {self.node} now did, {devices} is free"
        )

    @property
    def remedy(self) -> str:
        return "nothing need be done"


Notice = RecordDamaged | DeviceLost | DeviceAiling | ReleasedUnasked
