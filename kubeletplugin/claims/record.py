"""The durable record of one claim: what it says, and how it is written.

The promise: format 1 is read by every version from the first on. Fields may be added and are ignored by versions that do
not know them; `format` is raised only when an older version must not touch the claim, and an older version then leaves the
file where it is. No checksum over structures: the file is written as a whole or not at all (`kubeletplugin.disk`), and what
others broke does not parse (dra-driver-nvidia-gpu #1080, #1326).
"""

import json
import re
from dataclasses import dataclass, replace
from typing import Any

from api.claims import Claim, Result
from api.hardware import Gpu, Machine
from api.names import ClaimRef, gpu_address, is_dns_label

FORMAT = 1

_UID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,127}")


@dataclass(frozen=True, slots=True)
class RecordedDevice:
    """One device, or one share of it, as the claim has it."""

    pool: str
    device: str
    requests: tuple[str, ...]
    """Base request names, in the order of the allocation."""
    admin: bool = False
    """Admin access: beside whoever has the device, and without a hold."""
    share_id: str | None = None
    uuid: str = ""
    pci: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """What we know of a prepared claim without asking anybody."""

    claim: ClaimRef
    boot_id: str
    devices: tuple[RecordedDevice, ...]
    prepared_at: str = ""
    """RFC 3339, for people."""

    @property
    def exclusive(self) -> frozenset[str]:
        """The devices that nobody else may have meanwhile: neither admin access nor a share."""
        return frozenset(item.device for item in self.devices if not item.admin and item.share_id is None)

    @property
    def allocation(self) -> frozenset[tuple[str, str, str | None, bool, tuple[str, ...]]]:
        """What the scheduler gave, to tell a repeated prepare from another allocation of the same claim."""
        return frozenset((item.pool, item.device, item.share_id, item.admin, item.requests) for item in self.devices)


@dataclass(frozen=True, slots=True)
class Damaged:
    """A file that is no record."""

    problem: str


@dataclass(frozen=True, slots=True)
class Newer:
    """A record of a later version."""

    format: int


def is_uid(text: str) -> bool:
    """Whether a claim's UID can name our files. Kubernetes' UIDs are UUIDs; what has a dot or slash never came from there."""
    return _UID.fullmatch(text) is not None


def gpu_of(machine: Machine, device: str) -> Gpu | None:
    """The machine's GPU of that device name."""
    address = gpu_address(device)
    if address is None:
        return None
    # The bus first: comparing whole addresses costs ten times more.
    same_bus = (gpu for gpu in machine.gpus if gpu.place.address.bus == address.bus)
    return next((gpu for gpu in same_bus if gpu.place.address == address), None)


def record_of(claim: Claim, driver: str, machine: Machine | None, *, prepared_at: str) -> Record:
    """The record that preparing this claim leads to: one entry for each device and share, its requests together.

    A device that the claim has twice, once with admin access only, is held.
    """
    found: dict[tuple[str, str, str | None], list[Result]] = {}
    for result in claim.results_of(driver):
        found.setdefault((result.pool, result.device, result.share_id), []).append(result)
    devices = tuple(
        RecordedDevice(
            pool=pool,
            device=device,
            requests=tuple(dict.fromkeys(result.base_request for result in results)),
            admin=all(result.admin_access for result in results),
            share_id=share,
        )
        for (pool, device, share), results in found.items()
    )
    record = Record(claim.ref, "", devices, prepared_at)
    return record if machine is None else refreshed(record, machine)


def refreshed(record: Record, machine: Machine) -> Record:
    """The record as it would be written on this machine now. A device that is gone keeps what was known of it."""
    return replace(
        record,
        boot_id=machine.boot_id,
        devices=tuple(
            replace(item, uuid=gpu.uuid, pci=str(gpu.place.address)) if (gpu := gpu_of(machine, item.device)) else item
            for item in record.devices
        ),
    )


def missing_devices(record: Record, machine: Machine) -> tuple[str, ...]:
    """Devices of the record that the machine does not have now, or that do not answer."""
    gpus = {item.device: gpu_of(machine, item.device) for item in record.devices}
    return tuple(device for device, gpu in gpus.items() if gpu is None or gpu.lost is not None)


def encode(record: Record) -> bytes:
    """The file's content; equal records give equal bytes."""
    document = {
        "format": FORMAT,
        "claim": {"namespace": record.claim.namespace, "name": record.claim.name, "uid": record.claim.uid},
        "bootID": record.boot_id,
        "preparedAt": record.prepared_at,
        "devices": [
            {
                "pool": item.pool,
                "device": item.device,
                "requests": list(item.requests),
                "admin": item.admin,
                "shareID": item.share_id,
                "uuid": item.uuid,
                "pci": item.pci,
            }
            for item in record.devices
        ],
    }
    return json.dumps(document).encode() + b"\n"


def decode(content: bytes, *, uid: str) -> Record | Newer | Damaged:
    """Read a file that is named after `uid`. Never raises: whatever it holds is one of the three."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        return Damaged("is no JSON" if content.strip() else "is empty")
    version = document.get("format") if isinstance(document, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        return Damaged("states no format")
    if version > FORMAT:
        return Newer(version)
    try:
        record = _record(document)
    except (KeyError, TypeError, AttributeError) as error:
        return Damaged(f"lacks {error}" if isinstance(error, KeyError) else f"has a field of the wrong type: {error}")
    if record.claim.uid != uid:
        return Damaged(f"tells of another claim, {record.claim.uid}")
    return record


def salvaged_ref(content: bytes, *, uid: str) -> ClaimRef | None:
    """The claim that a damaged record was of, where that much can be read, so that somebody can be told."""
    try:
        ref = _ref(json.loads(content)["claim"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return ref if ref.uid == uid else None


def _record(document: dict[str, Any]) -> Record:
    return Record(
        claim=_ref(document["claim"]),
        boot_id=_text(document["bootID"]),
        devices=tuple(
            RecordedDevice(
                pool=_text(item["pool"]),
                device=_device(item["device"]),
                requests=tuple(_text(request) for request in item["requests"]),
                admin=bool(item.get("admin")),
                share_id=None if item.get("shareID") is None else _text(item["shareID"]),
                uuid=_text(item.get("uuid", "")),
                pci=_text(item.get("pci", "")),
            )
            for item in document["devices"]
        ),
        prepared_at=_text(document.get("preparedAt", "")),
    )


def _ref(document: dict[str, Any]) -> ClaimRef:
    return ClaimRef(_text(document["namespace"]), _text(document["name"]), _text(document["uid"]))


def _device(value: Any) -> str:
    """A device's name also names its hold's file: nothing but what Kubernetes takes for one."""
    name = _text(value)
    if not is_dns_label(name):
        raise TypeError(f"{name[:64]!r} is no device name")
    return name


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
