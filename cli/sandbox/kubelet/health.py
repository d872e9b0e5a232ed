"""How healthy each device is, by its driver's reports, and what of it stands in a pod's status.

Source: pkg/kubelet/cm/dra/healthinfo.go, and UpdateAllocatedResourcesStatus of manager.go.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cli.sandbox.kubelet.ledger import Entry, Ledger
from cli.sandbox.kubelet.pods import Object, uses_of

STALE_SECONDS = 30.0
"""A device is Unknown this long after its last report, unless the report says otherwise (DefaultHealthTimeout)."""
MESSAGE_BYTES = 1024
_WORDS = {1: "Healthy", 2: "Unhealthy"}
_Place = tuple[str, str, str]
"""Driver, pool, device."""


@dataclass(frozen=True, slots=True)
class _Health:
    word: str
    message: str
    stale_seconds: float
    seen_at: float


class DeviceHealth:
    """The last report on each device. Safe from several threads; `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[_Place, _Health] = {}

    def take(self, driver: str, report: Any) -> bool:
        """A message of a health stream; whether it changes anything. Devices it does not name keep their state until stale."""
        now = self._clock()
        changed = False
        with self._lock:
            named = set()
            for each in report.devices:
                place = (driver, each.device.pool_name, each.device.device_name)
                named.add(place)
                seconds = float(each.health_check_timeout_seconds)
                health = _Health(
                    _WORDS.get(each.health, "Unknown"),
                    _cut(getattr(each, "message", "")),
                    seconds if seconds > 0 else STALE_SECONDS,
                    now,
                )
                before = self._known.get(place)
                changed |= before is None or _said(before) != _said(health)
                self._known[place] = health
            for place, old in list(self._known.items()):
                if place[0] == driver and place not in named and now - old.seen_at > old.stale_seconds:
                    changed |= old.word != "Unknown"
                    del self._known[place]
        return changed

    def clear(self, driver: str) -> None:
        """A health stream of the driver has ended: nothing is known any more, even if another instance still reports."""
        with self._lock:
            self._known = {place: health for place, health in self._known.items() if place[0] != driver}

    def of(self, driver: str, pool: str, device: str) -> tuple[str, str]:
        """Healthy, Unhealthy or Unknown, and the driver's message."""
        with self._lock:
            found = self._known.get((driver, pool, device))
        if found is None or self._clock() - found.seen_at > found.stale_seconds:
            return "Unknown", ""
        return found.word, found.message


def allocated_resources(pod: Object, container: Object, ledger: Ledger, health: DeviceHealth) -> list[dict[str, Any]]:
    """`allocatedResourcesStatus` of a container: not of the claim for extended resources, as upstream leaves it out."""
    found: dict[str, list[dict[str, Any]]] = {}
    with ledger.locked() as entries:
        for use in uses_of(pod, container):
            entry = entries.get((pod["metadata"]["namespace"], use.claim))
            if use.pod_claim is None or entry is None:
                continue
            name = f"claim:{use.pod_claim}/{use.request}" if use.request else f"claim:{use.pod_claim}"
            found[name] = _of_entry(entry, use.request, health)
    return [{"name": name, "resources": resources} for name, resources in found.items() if resources]


def _of_entry(entry: Entry, request: str, health: DeviceHealth) -> list[dict[str, Any]]:
    resources: dict[str, dict[str, Any]] = {}
    for driver, devices in entry.drivers.items():
        for device in devices:
            if request and device.requests and request.partition("/")[0] not in device.requests:
                continue
            resource_id = device.cdi_ids[0] if device.cdi_ids else f"{driver}/{device.pool}/{device.device}"
            word, message = health.of(driver, device.pool, device.device)
            told = {"resourceID": resource_id, "health": word, **({"message": message} if message else {})}
            resources.setdefault(resource_id, told)
    return list(resources.values())


def _said(health: _Health) -> tuple[str, str, float]:
    return health.word, health.message, health.stale_seconds


def _cut(message: str) -> str:
    content = message.encode()
    if len(content) <= MESSAGE_BYTES:
        return message
    return content[: MESSAGE_BYTES - 3].decode(errors="ignore") + "..."
