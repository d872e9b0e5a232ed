"""What metrics see of a node plugin, with defaults that a test overrides where it matters."""

from typing import Any

from kubeletplugin.claims.record import Record, RecordedDevice
from kubeletplugin.seen import Seen
from tests.support.claims_world import POOL, a_machine, a_ref, device


def a_record(number: int, *devices: int, admin: bool = False) -> Record:
    """Claim `number` has these GPUs."""
    held = (RecordedDevice(POOL, device(n), ("gpu",), admin=admin, uuid=f"GPU-{0x65 + n:02x}") for n in devices)
    return Record(a_ref(number), "boot-1", tuple(held))


def a_look(**changes: Any) -> Seen:
    """A plugin with four GPUs and nothing to do."""
    usual: dict[str, Any] = {
        "machine": a_machine(4),
        "records": (),
        "registered": True,
        "why_not_ready": None,
        "report_age_seconds": 2.5,
        "events_lost": 0,
    }
    return Seen(**usual | changes)
