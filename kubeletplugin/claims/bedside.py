"""Telling those whose claims hold a device when it falls ill.

Told once each time that something begins. What an earlier process knew of was told by that one.
"""

from collections.abc import Callable, Collection

import structlog

from api.hardware import Machine
from api.health import LOST, Ailment, is_serious
from api.names import ClaimRef
from api.refusals import Reason
from kubeletplugin.claims.notices import DeviceAiling, DeviceLost
from kubeletplugin.claims.record import Record, gpu_of, missing_devices
from kubeletplugin.claims.states import Event

_log = structlog.get_logger(__name__)

_Known = frozenset[tuple[str, str, str]]
"""Device, kind and code. A device that is gone has the kind `lost`, however that is known."""


class Bedside:
    """What has been told of each claim's devices. For one thread at a time."""

    def __init__(
        self, node: str, tell: Callable[[ClaimRef, Reason, Event], None], told_before: Callable[[str, Ailment], bool]
    ) -> None:
        """`told_before`: whether an earlier process knew of this ailment of the GPU of this UUID."""
        self._node, self._tell, self._told_before = node, tell, told_before
        self._known: dict[str, _Known] = {}

    def keep(self, uids: Collection[str]) -> None:
        """Forget all other claims."""
        self._known = {uid: known for uid, known in self._known.items() if uid in uids}

    def visit(self, record: Record, machine: Machine | None) -> bool:
        """Tell what is new of the claim's devices; whether one of them is lost. The claim keeps what it has: it may be used."""
        if machine is None:
            return False
        uid, missing = record.claim.uid, missing_devices(record, machine)
        found = {(device, ailment.kind, ailment.code): ailment for device, ailment in _ailments(record, machine)}
        now = frozenset((device, LOST, "") for device in missing) | frozenset(found)
        before = self._known.get(uid, frozenset())
        self._known[uid] = now
        lost = tuple(
            device for device in missing if (device, LOST, "") not in before and self._is_news(device, machine)
        )
        if lost:
            _log.warning("prepared device lost", claim=str(record.claim), uid=uid, devices=lost)
            self._tell(record.claim, DeviceLost(record.claim, self._node, lost), Event.RECOVER)
        for key in sorted(frozenset(found) - before):
            device, ailment = key[0], found[key]
            if not self._told_before(_uuid(device, machine), ailment):
                _log.warning(
                    "prepared device ailing", claim=str(record.claim), uid=uid, device=device, why=ailment.message
                )
                notice = DeviceAiling(record.claim, device, self._node, ailment.message, ailment.remedy)
                self._tell(record.claim, notice, Event.RECOVER)
        return bool(missing)

    def _is_news(self, device: str, machine: Machine) -> bool:
        gpu = gpu_of(machine, device)
        return gpu is None or gpu.lost is None or not self._told_before(gpu.uuid, gpu.lost)


def _uuid(device: str, machine: Machine) -> str:
    gpu = gpu_of(machine, device)
    return gpu.uuid if gpu is not None else ""


def _ailments(record: Record, machine: Machine) -> list[tuple[str, Ailment]]:
    """What makes a device of the claim unfit, other than being lost."""
    return [
        (item.device, ailment)
        for item in record.devices
        if (gpu := gpu_of(machine, item.device)) is not None
        for ailment in gpu.ailments
        if is_serious(ailment) and ailment.kind != LOST
    ]
