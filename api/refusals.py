"""How Lanewise says no.

A reason is a frozen dataclass that says what happened and what to do; one exception carries it, so that a refusal cannot
lack its why and callers can look at data instead of text.
"""

from dataclasses import dataclass
from typing import Protocol


class Reason(Protocol):
    """What stopped us, told to the reader who can do something about it."""

    @property
    def what(self) -> str:
        """One line that stands alone: where, and what is the matter."""

    @property
    def remedy(self) -> str:
        """What the reader can do, or that nothing need be done; never a guess."""


class Refused(Exception):  # noqa: N818  # it carries a reason; most are no errors of ours
    """A request that cannot be met, with its reason."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.what)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.reason.what} ({self.reason.remedy})"


@dataclass(frozen=True, slots=True)
class BadInput:
    """Something a person wrote cannot be used: a flag, a file, an environment variable."""

    source: str
    """Where it was read: a path, with the field behind it if there is one, or the flag's name."""
    problem: str
    remedy: str

    @property
    def what(self) -> str:
        return f"{self.source}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Several:
    """All that is wrong with one input, so that it is mended in one go."""

    reasons: tuple[Reason, ...]

    @property
    def what(self) -> str:
        return "; ".join(reason.what for reason in self.reasons)

    @property
    def remedy(self) -> str:
        return "; ".join(dict.fromkeys(reason.remedy for reason in self.reasons))
