"""The CDI files of our claims on disk: one for each, and no other file is ever touched.

/var/run is emptied by a reboot and the files with it, so nothing here is the truth: each file can be made anew from the
claim's record (Case G1). So nothing waits for a disk here either, where the directory is on one: a file is there as a whole or
not at all while the machine runs, and after a power loss it is compared with the record before anybody uses it.
"""

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from api.refusals import BadInput, Refused
from kubeletplugin.cdi import naming
from kubeletplugin.cdi.spec import Edits, Spec, encode, to_document
from kubeletplugin.cdi.validate import Invalid, Problem, problems
from kubeletplugin.disk import TEMPORARY_SUFFIX, Disk, content_of

LEFTOVER_SECONDS = 60.0
"""A temporary file younger than this may be one that another instance, in a rolling update, is writing now."""

_JUDGED = {"env": ["JUDGED=1"]}
_JUDGED_MAX = 1024
_FILE_MODE = 0o644
_DIRECTORY_MODE = 0o755


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file of our name that says nothing a runtime could use."""

    path: Path
    problem: str

    @property
    def what(self) -> str:
        return f"{self.path}: {self.problem}"

    @property
    def remedy(self) -> str:
        return (
            "nothing need be done: it is written anew with the next prepare of its claim, and removed with its release"
        )


@dataclass(frozen=True, slots=True)
class CannotKeep:
    """The file system refused a CDI file."""

    path: Path
    problem: str

    @property
    def what(self) -> str:
        return f"{self.path}: {self.problem}"

    @property
    def remedy(self) -> str:
        return "see that the CDI directory is writable for the plugin and has room; the kubelet tries again by itself"


class CdiFiles:
    """The files of one driver in one directory. Methods may be called from several threads, for one claim one at a time."""

    def __init__(self, directory: Path, driver: str, disk: Disk) -> None:
        """Refused (BadInput): a relative directory, or a driver name that is no CDI vendor. Touches no disk."""
        if not directory.is_absolute():
            raise Refused(BadInput("--cdi-dir", f"{str(directory)!r} is no absolute path", "use /var/run/cdi"))
        self.directory = directory
        self._driver = driver
        self._kind = naming.kind(driver)
        self._disk = disk
        self._valid: Edits | None = None
        """Common edits found valid by the last write: the same for every claim, and the bulk of each file."""
        self._valid_devices: set[Edits] = set()
        """Likewise those of devices: a GPU has the same in every claim."""

    def ensure_directory(self) -> None:
        """Make the directory if it is missing. Refused (BadInput) when that cannot be, or when it cannot be written to."""
        try:
            _make_directory(self.directory)
        except OSError as error:
            problem = error.strerror or str(error)
            raise Refused(BadInput(str(self.directory), problem, "give --cdi-dir a directory for CDI files")) from error
        if not os.access(self.directory, os.W_OK | os.X_OK):
            raise Refused(BadInput(str(self.directory), "not writable", "let the plugin write to it: run it as root"))

    def path(self, uid: str) -> Path:
        """Where the file of a claim is. Refused when the UID is no safe part of a file name."""
        return self.directory / naming.file_name(self._driver, uid)

    def write(self, uid: str, spec: Spec) -> bool:
        """Write the claim's file; False when it is there already, byte for byte. Makes the directory when it is missing.

        Raises Refused: the spec is invalid (Invalid), or the file system refused (CannotKeep).
        """
        path = self.path(uid)
        document = to_document(spec)
        faults = problems(self._unjudged(spec, document))
        if spec.kind != self._kind:
            faults = (*faults, Problem("kind", f"{spec.kind!r} in a file of {self._kind}"))
        if faults:
            raise Refused(
                Invalid(f"the CDI file for claim {uid}", faults, "this is a fault of Lanewise; please report it")
            )
        self._valid = spec.edits
        if len(self._valid_devices) > _JUDGED_MAX:
            self._valid_devices = set()
        self._valid_devices.update(device.edits for device in spec.devices)
        content = encode(document)
        try:
            if _is_there(path, content):
                return False
            _make_directory(self.directory)
            self._disk.write(path, content, mode=_FILE_MODE, durable=False)
        except OSError as error:
            raise Refused(CannotKeep(path, error.strerror or str(error))) from error
        return True

    def remove(self, uid: str) -> bool:
        """Remove the claim's file; False when there is none of ours, which is no fault. Raises Refused (CannotKeep)."""
        path = self.path(uid)
        if not self.is_ours(uid):
            return False
        try:
            self._disk.unlink(path)
        except OSError as error:
            raise Refused(CannotKeep(path, error.strerror or str(error))) from error
        return True

    def says(self, uid: str, spec: Spec) -> bool:
        """Whether the claim's file is, byte for byte, what `write` would make of this spec."""
        return _is_there(self.path(uid), encode(to_document(spec)))

    def is_ours(self, uid: str) -> bool:
        """Whether there is a file of this claim, readable or not, and not of another kind under our name."""
        return self.readable(uid) is not None

    def readable(self, uid: str) -> bool | None:
        """Whether the claim's file is JSON, which a file cut off is not; None where there is none of ours."""
        document = self._parsed(self.path(uid))
        return None if document is None else not isinstance(document, Unreadable)

    def read(self, uid: str) -> dict[str, Any] | Unreadable | None:
        """What the claim's file says; None when there is none of ours. A file that no runtime would read is Unreadable."""
        path = self.path(uid)
        document = self._parsed(path)
        if document is None or isinstance(document, Unreadable):
            return document
        faults = problems(document)
        if faults:
            return Unreadable(path, "; ".join(map(str, faults)))
        checked: dict[str, Any] = document
        return checked

    def _unjudged(self, spec: Spec, document: dict[str, Any]) -> dict[str, Any]:
        """The document without what was found valid before."""
        left = dict(document)
        if spec.edits is self._valid or spec.edits == self._valid:
            left.pop("containerEdits", None)
        left["devices"] = [
            {**found, "containerEdits": _JUDGED} if device.edits in self._valid_devices else found
            for device, found in zip(spec.devices, document["devices"], strict=True)
        ]
        return left

    def _parsed(self, path: Path) -> Any:
        """The file's JSON, which is never None; None and Unreadable as for `read`."""
        try:
            document = json.loads(content_of(path))
        except (FileNotFoundError, IsADirectoryError):  # we make no directories, and runtimes pass them by
            return None
        except OSError as error:
            return Unreadable(path, error.strerror or str(error))
        except (ValueError, RecursionError) as error:
            return Unreadable(path, f"no JSON: {error}")
        if isinstance(document, dict) and isinstance(document.get("kind"), str) and document["kind"] != self._kind:
            return None
        return Unreadable(path, "no object") if document is None else document

    def claims(self) -> frozenset[str]:
        """The claims with a file of ours, readable or not. Raises Refused (CannotKeep)."""
        return frozenset(uid for uid in self._named() if self.is_ours(uid))

    def found(self) -> dict[str, dict[str, Any] | Unreadable]:
        """What the file of each claim says, by UID, each read once. A missing directory has none.

        Raises Refused (CannotKeep).
        """
        read = ((uid, self.read(uid)) for uid in sorted(self._named()))
        return {uid: content for uid, content in read if content is not None}

    def uids(self) -> frozenset[str]:
        """The claims with a file of ours, by name and kind. Raises Refused (CannotKeep)."""
        return frozenset(uid for uid, content in self.found().items() if isinstance(content, dict))

    def unreadable(self) -> tuple[Unreadable, ...]:
        """Files of our name that no runtime can read; `remove` removes them, `write` replaces them."""
        return tuple(content for content in self.found().values() if isinstance(content, Unreadable))

    def sweep(self, now: float) -> tuple[Path, ...]:
        """Remove what writes left behind that were cut off; returns what was removed. `now` in seconds since the epoch."""
        prefix = naming.file_prefix(self._driver)
        swept = []
        for name in self._names():
            if not (name.startswith(prefix) and name.endswith(TEMPORARY_SUFFIX)):
                continue
            path = self.directory / name
            try:
                if now - path.lstat().st_mtime >= LEFTOVER_SECONDS:
                    self._disk.remove(path)
                    swept.append(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise Refused(CannotKeep(path, error.strerror or str(error))) from error
        return tuple(swept)

    def _named(self) -> Iterator[str]:
        for name in self._names():
            uid = naming.uid_of(self._driver, name)
            if uid is not None:
                yield uid

    def _names(self) -> list[str]:
        try:
            return sorted(os.listdir(self.directory))  # noqa: PTH208  # names are wanted
        except FileNotFoundError:
            return []
        except OSError as error:
            raise Refused(CannotKeep(self.directory, error.strerror or str(error))) from error


def _make_directory(directory: Path) -> None:
    if not directory.is_dir():
        directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        directory.chmod(_DIRECTORY_MODE)  # past the umask: a runtime need not run as our user


def _is_there(path: Path, content: bytes) -> bool:
    try:
        return stat.S_IMODE(path.stat().st_mode) == _FILE_MODE and content_of(path) == content
    except OSError:
        return False  # whatever is the matter, writing it anew says so or heals it
