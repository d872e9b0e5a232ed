"""What a check found, and how bad that is."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """How bad; also the exit code of the worst."""

    OK = 0
    WARNING = 1
    """Somebody should look, or it could not be found out."""
    FAILURE = 2
    """Lanewise does not work here until this is mended."""

    @property
    def word(self) -> str:
        """For people and programs."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Finding:
    """One line."""

    check: str
    """What was looked at: `driver`, `cdi files`."""
    level: Level
    what: str
    remedy: str = ""
    """What to do; empty where all is well."""


def ok(check: str, what: str) -> Finding:
    """All is well."""
    return Finding(check, Level.OK, what)


def warning(check: str, what: str, remedy: str) -> Finding:
    """Somebody should look."""
    return Finding(check, Level.WARNING, what, remedy)


def failure(check: str, what: str, remedy: str) -> Finding:
    """It does not work like this."""
    return Finding(check, Level.FAILURE, what, remedy)


def worst(findings: Iterable[Finding]) -> Level:
    """The worst of them; OK when there are none."""
    return max((finding.level for finding in findings), default=Level.OK)


def plural(count: int, what: str) -> str:
    """`1 GPU`, `2 GPUs`."""
    return f"{count} {what}{'' if count == 1 else 's'}"
