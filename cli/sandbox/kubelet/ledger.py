"""Which claims the kubelet has had prepared, for which pods, and what their drivers said.

Source: pkg/kubelet/cm/dra/claiminfo.go and state/. What is written to disk does not say that a claim is prepared: after a
restart each one is prepared again before the next sandbox of a pod is made, as upstream guarantees.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from api.claims import PreparedDevice
from api.names import ClaimRef

Key = tuple[str, str]
"""Namespace, name."""


@dataclass
class Entry:
    """One claim on this node. To be looked at and changed under the ledger's lock."""

    ref: ClaimRef
    drivers: dict[str, tuple[PreparedDevice, ...]]
    """What each driver of the allocation has prepared so far."""
    pods: set[str] = field(default_factory=set)
    """UIDs of those that use it."""
    prepared: bool = False
    unpreparing: bool = False

    @property
    def key(self) -> Key:
        """Where it stands in the ledger."""
        return (self.ref.namespace, self.ref.name)

    def cdi_names(self, request: str) -> list[str]:
        """CDI device names of one request, or of all for ""."""
        return [
            cdi_id
            for devices in self.drivers.values()
            for device in devices
            if not request or not device.requests or request in device.requests
            for cdi_id in device.cdi_ids
        ]


class Ledger:
    """All entries; `with ledger.locked():` around what belongs together. Safe from several threads."""

    def __init__(self, checkpoint: Path | None = None) -> None:
        """`checkpoint` is where it is kept; None for memory only. Raises OSError or ValueError for one that cannot be read."""
        self._checkpoint = checkpoint
        self._lock = threading.RLock()
        self.entries: dict[Key, Entry] = {}
        if checkpoint is not None and checkpoint.exists():
            self._load(checkpoint)

    @contextmanager
    def locked(self) -> Iterator[dict[Key, Entry]]:
        """The entries, for as long as the block lasts."""
        with self._lock:
            yield self.entries

    def of_pod(self, pod_uid: str) -> list[Key]:
        """The claims that a pod uses."""
        with self._lock:
            return [key for key, entry in self.entries.items() if pod_uid in entry.pods]

    def pods(self) -> set[str]:
        """UIDs of all pods that use a claim."""
        with self._lock:
            return {uid for entry in self.entries.values() for uid in entry.pods}

    def users_of(self, driver: str) -> set[str]:
        """UIDs of the pods that use a device of the driver."""
        with self._lock:
            return {uid for entry in self.entries.values() if entry.drivers.get(driver) for uid in entry.pods}

    def save(self) -> None:
        """Write the checkpoint: at once whole, or not at all."""
        if self._checkpoint is None:
            return
        with self._lock:
            content = [
                {
                    "claim": asdict(entry.ref),
                    "pods": sorted(entry.pods),
                    "drivers": {
                        name: [asdict(device) for device in devices] for name, devices in entry.drivers.items()
                    },
                }
                for entry in self.entries.values()
            ]
            new = self._checkpoint.with_suffix(".new")
            new.write_text(json.dumps(content), encoding="utf-8")
            new.replace(self._checkpoint)

    def _load(self, checkpoint: Path) -> None:
        for each in json.loads(checkpoint.read_text(encoding="utf-8")):
            drivers = {
                name: tuple(
                    PreparedDevice(
                        **{**device, "requests": tuple(device["requests"]), "cdi_ids": tuple(device["cdi_ids"])}
                    )
                    for device in devices
                )
                for name, devices in each["drivers"].items()
            }
            entry = Entry(ClaimRef(**each["claim"]), drivers, set(each["pods"]))
            self.entries[entry.key] = entry
