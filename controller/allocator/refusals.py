"""Why an allocation is not even tried on further nodes: what is asked is wrong, or is not understood here.

Each is carried by `api.refusals.Refused`. That the devices do not suffice is no refusal but an answer, see `whynot`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A field that kube-scheduler understands and this allocator does not."""

    where: str
    """The object: `claim ns/name, request gpu`, `device driver/pool/name`, ..."""
    field: str

    @property
    def what(self) -> str:
        return f"{self.where}: {self.field} is not supported here"

    @property
    def remedy(self) -> str:
        return f"leave {self.field} out, or let kube-scheduler allocate"


@dataclass(frozen=True, slots=True)
class BadSelector:
    """A CEL expression that does not compile, fails on a device, or uses what cannot be evaluated here."""

    where: str
    """`class NAME: selector #0` or `claim ns/name, request gpu: selector #0`."""
    problem: str
    device: str = ""

    @property
    def what(self) -> str:
        return f"{self.where}{f' on device {self.device}' if self.device else ''}: {self.problem}"

    @property
    def remedy(self) -> str:
        return "correct the expression; an attribute that not every device has needs a test with has() first"


@dataclass(frozen=True, slots=True)
class Insoluble:
    """Claims for which upstream ends the attempt for all nodes: no such class, too many devices, an unready pool."""

    where: str
    problem: str
    remedy: str

    @property
    def what(self) -> str:
        return f"{self.where}: {self.problem}"


@dataclass(frozen=True, slots=True)
class TooLong:
    """The search was ended before it had tried everything; kube-scheduler ends its own after ten seconds."""

    claims: tuple[str, ...]
    steps: int

    @property
    def what(self) -> str:
        return f"claims {', '.join(self.claims)}: no answer after {self.steps} steps of the search"

    @property
    def remedy(self) -> str:
        return "ask for fewer devices in one pod, or with fewer constraints"
