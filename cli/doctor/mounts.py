"""What is in a directory, and on which file system it is."""

import re
from dataclasses import dataclass
from pathlib import Path

_OCTAL = re.compile(r"\\([0-3][0-7]{2})")
"""How blanks and backslashes are written there."""
VOLATILE = ("tmpfs", "ramfs")


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of /proc/self/mountinfo (proc_pid_mountinfo(5))."""

    point: str
    kind: str
    """`ext4`, `tmpfs`, `overlay`"""
    read_only: bool


def mount_of(directory: Path, mountinfo: str) -> Mount | None:
    """The mount that shows at this path: the last of those that reach furthest down to it; None when there is none."""
    best: Mount | None = None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, types = before.split(), after.split()
        if len(fields) < 6 or not types:
            continue
        point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4])
        if directory.is_relative_to(point) and (best is None or len(point) >= len(best.point)):
            read_only = "ro" in fields[5].split(",") or (len(types) > 2 and "ro" in types[2].split(","))
            best = Mount(point, types[0], read_only)
    return best


def find(directory: Path, proc_root: Path) -> Mount | None:
    """The mount that a directory of this process is on; None where that cannot be told."""
    try:
        return mount_of(directory.resolve(), (proc_root / "self/mountinfo").read_text(errors="replace"))
    except OSError:
        return None


def names_in(directory: Path) -> list[str]:
    """Nothing where it is not there; OSError where that cannot be known."""
    try:
        return [entry.name for entry in directory.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
