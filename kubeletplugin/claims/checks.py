"""May this claim be prepared on this machine?

Each check answers with a reason or None, so that a refusal cannot lack its why. Whether a device is held by somebody else
is not asked here: taking the hold is the question (`kubeletplugin.claims.store`).
"""

from collections.abc import Iterable

from api.claims import Claim, Config
from api.hardware import Machine
from api.names import ClaimRef, gpu_address
from api.refusals import Reason, Several
from kubeletplugin.claims.record import Record, gpu_of
from kubeletplugin.claims.refusals import (
    Gone,
    InMigMode,
    LeftOutDevice,
    LostDevice,
    NotAllocated,
    OtherPool,
    PreparedOtherwise,
    Replaced,
    UnknownDevice,
    UnknownParameters,
)


def why_not_this_claim(ref: ClaimRef, claim: Claim | None) -> Reason | None:
    """Whether the claim that the kubelet means is the one that the API has, and is allocated.

    By UID: a pod deleted by force and a claim created anew under the same name are two claims (pkg/kubelet/cm/dra).
    """
    if claim is None:
        return Gone(ref)
    if claim.ref.uid != ref.uid:
        return Replaced(ref, claim.ref.uid)
    return None if claim.allocated else NotAllocated(ref)


def why_not_parameters(claim: Claim, driver: str) -> Reason | None:
    """All opaque configurations that are for us and for a device of ours: so far there is no kind of parameters."""
    results = claim.results_of(driver)
    return _all(
        UnknownParameters(claim.ref, index, driver, _kind(config), config.from_class)
        for index, config in enumerate(claim.configs)
        if config.driver == driver and any(config.covers(result) for result in results)
    )


def why_not_devices(record: Record, machine: Machine, *, node: str, pool: str) -> Reason | None:
    """All devices that this node cannot give now."""
    return _all(
        reason
        for device, of_pool in dict.fromkeys((item.device, item.pool) for item in record.devices)
        if (reason := _why_not_device(record.claim, device, of_pool, machine, node=node, pool=pool)) is not None
    )


def why_not_again(record: Record, before: Record | None, *, node: str) -> Reason | None:
    """Whether a claim that is prepared already still has the same devices.

    The API takes an allocation back only when no pod uses the claim, but containers of a pod deleted by force may run on.
    """
    if before is None or before.allocation == record.allocation:
        return None
    names = [tuple(dict.fromkeys(item.device for item in one.devices)) for one in (before, record)]
    return PreparedOtherwise(record.claim, node, *names)


def why_abandoned(record: Record, claim: Claim | None, driver: str) -> str | None:
    """Why the API knows nothing of what is prepared here, None while it does."""
    if claim is None:
        return "it exists no more"
    if claim.ref.uid != record.claim.uid:
        return "a new claim has its name"
    allocated = {result.device for result in claim.results_of(driver)} if claim.allocated else set()
    gone = [item.device for item in record.devices if item.device not in allocated]
    return f"{', '.join(dict.fromkeys(gone))} is no longer allocated to it" if gone else None


def _why_not_device(
    ref: ClaimRef, device: str, of_pool: str, machine: Machine, *, node: str, pool: str
) -> Reason | None:
    if of_pool != pool:
        return OtherPool(ref, device, of_pool, node)
    gpu = gpu_of(machine, device)
    if gpu is None:
        return _why_not_there(ref, device, machine, node=node)
    if gpu.lost is not None:
        return LostDevice(ref, device, node, gpu.lost.message, gpu.lost.since, gpu.lost.remedy)
    return InMigMode(ref, device, node, gpu.place.address) if gpu.mig_enabled else None


def _why_not_there(ref: ClaimRef, device: str, machine: Machine, *, node: str) -> Reason:
    address = gpu_address(device)
    names = {device} if address is None else {device, str(address)}
    left_out = [item for item in machine.left_out if item.what in names]
    return LeftOutDevice(ref, device, node, left_out[0].why) if left_out else UnknownDevice(ref, device, node)


def _kind(config: Config) -> str:
    kind = config.parameters.get("kind") if isinstance(config.parameters, dict) else None
    return f"kind {kind!r}" if isinstance(kind, str) else "a configuration without a kind"


def _all(reasons: Iterable[Reason]) -> Reason | None:
    found = tuple(reasons)
    return found[0] if len(found) == 1 else Several(found) if found else None
