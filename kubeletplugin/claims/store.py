"""Where the plugin keeps what it knows of claims, on disk and nowhere else.

Below the plugin's data directory, which must survive a restart of the pod and of the node (Case G13):

    claims/<uid>.json                       one durable record a claim
    devices/<device>                        the hold: a link that names the UID of the claim that has the device
    released/<uid>.json                     the mark that a claim was released, for a few minutes
    quarantine/<uid>.<boot id>.<n>.json     records that could not be read, as they were
    locks/claims                            see `kubeletplugin.claims.locks`

Making a link fails when it exists, in whichever process: that is the whole arbitration over a device, and it costs the same
with one claim or a thousand. Deciding what to do is elsewhere; here is how each thing is kept.
"""

import contextlib
import errno
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from api.names import ClaimRef
from api.refusals import BadInput, Refused
from kubeletplugin.claims.record import Damaged, Newer, Record, decode, encode, is_uid
from kubeletplugin.disk import TEMPORARY_SUFFIX, Disk, content_of

RELEASE_KEPT_SECONDS = 300.0
"""The kubelet gives up a call after 45 s; a call that waits longer than this waits for nobody."""
RECORD_SUFFIX = ".json"
UNKNOWN_BOOT = "unknown"
_NO_FILE = frozenset({errno.EISDIR, errno.ELOOP, errno.ENXIO})
"""What reading says of a thing that is no file and never will be."""


@dataclass(frozen=True, slots=True)
class Release:
    """That a claim was released, and when."""

    boot_id: str
    at: float
    """Seconds since boot."""

    def is_after(self, arrival: float, *, boot_id: str) -> bool:
        """Whether a call that came in at `arrival` (seconds since this boot) is older than the release (Case G6)."""
        return self.boot_id in {boot_id, ""} and arrival < self.at

    def is_over(self, now: float, *, boot_id: str) -> bool:
        """Whether no call can be older than it any more."""
        other_boot = bool(boot_id) and self.boot_id not in {boot_id, ""}
        return other_boot or not 0 <= now - self.at < RELEASE_KEPT_SECONDS


class Store:
    """The plugin's data directory. All methods raise OSError; those that change a claim want its lock held."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self.root = root
        self.locks = root / "locks"
        self._disk = disk
        self._claims = root / "claims"
        self._devices = root / "devices"
        self._released = root / "released"
        self.quarantine = root / "quarantine"

    def make_rooms(self) -> None:
        """Make the directories. Refused, naming the path, where that is impossible."""
        for room in (self._claims, self._devices, self._released, self.quarantine, self.locks):
            try:
                room.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                remedy = "the plugin's data directory must be a directory on a disk that can be written and survives a reboot"
                raise Refused(BadInput(str(room), error.strerror or str(error), remedy)) from error

    # Records.

    def read(self, uid: str) -> Record | Newer | Damaged | None:
        """The claim's record. A disk that does not answer right now raises; one that will never answer is damage."""
        try:
            return decode(content_of(f"{self._claims}/{uid}{RECORD_SUFFIX}"), uid=uid)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in _NO_FILE | {errno.EIO}:
                return Damaged(f"cannot be read: {error.strerror}")
            raise

    def write(self, record: Record) -> None:
        self._disk.write(self.record_path(record.claim.uid), encode(record))

    def remove(self, uid: str) -> None:
        self._disk.remove(self.record_path(uid))

    def record_path(self, uid: str) -> Path:
        return self._claims / f"{uid}{RECORD_SUFFIX}"

    def recorded(self) -> list[str]:
        """UIDs of all claims with a record, sorted."""
        return sorted(_uids(self._claims, RECORD_SUFFIX))

    def records(self) -> Iterator[Record]:
        """All records that can be read, in order of UID. One read a claim: for status and comparison, never for a prepare."""
        for uid in self.recorded():
            with contextlib.suppress(OSError):
                record = self.read(uid)
                if isinstance(record, Record):
                    yield record

    # Quarantine.

    def set_aside(self, uid: str, *, boot_id: str) -> Path:
        """Move a record that cannot be read out of the way, content kept. Returns where to."""
        stem = f"{uid}.{_for_name(boot_id)}"
        number = 0
        while (path := self.quarantine / f"{stem}.{number}{RECORD_SUFFIX}").exists():
            number += 1
        self._disk.move(self.record_path(uid), path)
        return path

    def was_set_aside(self, uid: str, *, boot_id: str) -> bool:
        """Whether that happened since the machine started: before, nothing of the claim can be running."""
        names = os.listdir(self.quarantine)  # noqa: PTH208  # names are wanted
        boots = {name.split(".")[1] for name in names if name.startswith(f"{uid}.") and name.endswith(RECORD_SUFFIX)}
        return bool(boots) and (not boot_id or bool(boots & {_for_name(boot_id), UNKNOWN_BOOT}))

    # Holds.

    def holder(self, device: str) -> str | None:
        """UID of the claim that holds the device. OSError where something else than a link stands."""
        try:
            return os.readlink(f"{self._devices}/{device}")  # noqa: PTH115  # as text: a Path costs more than the call
        except FileNotFoundError:
            return None

    def holds(self) -> dict[str, str]:
        """Device to holder's UID. What is no link is left out."""
        found = {}
        for device in sorted(os.listdir(self._devices)):  # noqa: PTH208  # names are wanted
            with contextlib.suppress(OSError):
                found[device] = os.readlink(f"{self._devices}/{device}")  # noqa: PTH115  # as in `holder`
        return found

    def holds_of(self, uid: str) -> frozenset[str]:
        """Devices held by this claim. Looks at each held device of the node."""
        return frozenset(device for device, holder in self.holds().items() if holder == uid)

    def held_of(self, uid: str, devices: Iterable[str]) -> frozenset[str]:
        """Which of these devices the claim holds. What is no link is left out."""
        found = set()
        for device in devices:
            with contextlib.suppress(OSError):
                if self.holder(device) == uid:
                    found.add(device)
        return frozenset(found)

    def hold(self, device: str, uid: str) -> None:
        """FileExistsError when the device is held, by whomever."""
        self._disk.link(self.hold_path(device), uid)

    def drop(self, device: str, uid: str) -> None:
        """Drop the claim's hold on the device; another's stays. Only who has the lock of `uid` may, so nobody comes between."""
        if self.holder(device) == uid:
            self._disk.unlink(self.hold_path(device))

    def hold_path(self, device: str) -> Path:
        return self._devices / device

    # Releases.

    def mark_released(self, ref: ClaimRef, release: Release) -> None:
        document = {
            "claim": {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid},
            "bootID": release.boot_id,
            "secondsSinceBoot": release.at,
        }
        # It orders calls of one boot; a machine that lost power has no call under way, and recovery finds the record.
        self._disk.write(self._release_path(ref.uid), json.dumps(document).encode() + b"\n", durable=False)

    def release_of(self, uid: str) -> Release | None:
        """The mark, None when there is none; what is no file in its place is none. One that cannot be read marks
        nothing but that there was one."""
        try:
            document = json.loads(content_of(f"{self._released}/{uid}{RECORD_SUFFIX}"))
            return Release(str(document["bootID"]), float(document["secondsSinceBoot"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            return Release(UNKNOWN_BOOT, 0.0)
        except OSError as error:
            if error.errno in _NO_FILE | {errno.ENOENT}:
                return None
            raise

    def forget_release(self, uid: str) -> None:
        path = self._release_path(uid)
        if os.path.isfile(path):  # noqa: PTH113  # as in `holder`; looking is cheaper than a durable removal of nothing
            self._disk.remove(path)

    def _release_path(self, uid: str) -> Path:
        return self._released / f"{uid}{RECORD_SUFFIX}"

    # All of it.

    def uids(self) -> set[str]:
        """Every claim that has left anything here, quarantine aside."""
        found = set(self.holds().values())
        for room, suffix in ((self._claims, RECORD_SUFFIX), (self._released, RECORD_SUFFIX)):
            found |= _uids(room, suffix)
            found |= {path.name.split(".")[0] for path in room.glob(f"*{TEMPORARY_SUFFIX}")}
        return {uid for uid in found if is_uid(uid)}

    def temporaries(self) -> dict[str, list[Path]]:
        """What writes have under way, or left when they were cut off, by claim."""
        found: dict[str, list[Path]] = {}
        for room in (self._claims, self._released):
            for path in room.glob(f"*{TEMPORARY_SUFFIX}"):
                found.setdefault(path.name.split(".")[0], []).append(path)
        return found

    def remove_temporaries(self, paths: Iterable[Path]) -> None:
        """Remove those of one claim. What was finished since they were found is there under its own name."""
        for path in paths:
            self._disk.unlink(path)


def _uids(room: Path, suffix: str) -> set[str]:
    return {name for path in room.glob(f"*{suffix}") if is_uid(name := path.name.removesuffix(suffix))}


def _for_name(boot_id: str) -> str:
    return re.sub(r"[^0-9A-Za-z-]", "_", boot_id) or UNKNOWN_BOOT
