"""Why a node cannot give a pod the devices it claims, counted per request and said in words.

Each device is counted under the first reason that keeps it from the request, in the order in which the search asks:
somebody has it, a selector rejects it, it is not for this node, it is tainted.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from api.refusals import Refused
from controller.allocator.constraints import value_of
from controller.allocator.pools import Device, Pool
from controller.allocator.question import DeviceID
from controller.allocator.selection import Selection, untolerated
from controller.allocator.wishes import Claim, Constraint, Wish

SHOWN_CLAIMS = 8
SHOWN_CHARACTERS = 160


@dataclass(frozen=True, slots=True)
class Held:
    """Allocated to a claim."""

    claim: str


@dataclass(frozen=True, slots=True)
class Deselected:
    """A selector is false for it."""

    whose: str
    """`class NAME` or `the request`."""
    expression: str

    def __str__(self) -> str:
        return f"rejected by the selector of {self.whose}: {cut(self.expression)}"


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The device is for other nodes."""

    def __str__(self) -> str:
        return "only for other nodes"


@dataclass(frozen=True, slots=True)
class Tainted:
    """A taint that the request does not tolerate."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"tainted {self.key}{f'={self.value}' if self.value else ''}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Broken:
    """A selector fails on it; the search ended before it came to this device."""

    problem: str

    def __str__(self) -> str:
        return f"cannot be judged: {self.problem}"


Why = Held | Deselected | Elsewhere | Tainted | Broken


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of the devices of the node for one request."""

    claim: str
    request: str
    wanted: int | None
    """How many; None for all."""
    seen: int
    """How many devices the node can reach in complete pools."""
    rejected: Mapping[Why, tuple[DeviceID, ...]]
    fitting: tuple[DeviceID, ...]

    @property
    def enough(self) -> bool:
        """Whether this request, asked alone and without constraints, could be met."""
        if self.wanted is None:
            return bool(self.fitting) and all(isinstance(why, Deselected | Elsewhere) for why in self.rejected)
        return len(self.fitting) >= self.wanted

    def __str__(self) -> str:
        wanted = "all devices" if self.wanted is None else f"{self.wanted} device{'s' * (self.wanted != 1)}"
        fit = f"{len(self.fitting)} of {self.seen} fit{'s' * (len(self.fitting) == 1)}"
        told = f"request {self.request} wants {wanted}, and {fit}"
        held = {why.claim: len(devices) for why, devices in self.rejected.items() if isinstance(why, Held)}
        reasons = [f"{sum(held.values())} held by {_claims(list(held))}"] if held else []
        reasons += [f"{len(devices)} {why}" for why, devices in self.rejected.items() if not isinstance(why, Held)]
        return f"{told} ({'; '.join(reasons)})" if reasons else told


@dataclass(frozen=True, slots=True)
class Spread:
    """How the devices that fit are spread over the values of a constraint's attribute."""

    claim: str
    attribute: str
    distinct: bool
    values: tuple[tuple[str, int], ...]
    """Each value and how many devices have it, the most frequent first; "none" for those without the attribute."""

    def __str__(self) -> str:
        rule = "a different" if self.distinct else "the same"
        shown = ", ".join(f"{count} {value}" for value, count in self.values[:8])
        more = ", ..." if len(self.values) > 8 else ""
        return f"claim {self.claim} wants {rule} {self.attribute} for its devices; of those that fit: {shown}{more}"


@dataclass(frozen=True, slots=True)
class WhyNot:
    """The claims cannot be met on this node."""

    node: str
    tallies: tuple[Tally, ...]
    """One for each request, or for each alternative of one, in the order of the claims."""
    spreads: tuple[Spread, ...]
    incomplete: tuple[str, ...]
    """Pools (`driver/name`) of which slices are missing at the moment."""
    invalid: tuple[str, ...]
    """Pools that nobody can use, with what is wrong with each."""

    @property
    def what(self) -> str:
        """One line that stands alone."""
        return f"node {self.node}: {self.why}"

    @property
    def why(self) -> str:
        """The requests that fail by themselves, or else what keeps them from being met together; without the node."""
        short = [tally for tally in self.tallies if not tally.enough]
        told = [f"claim {tally.claim}: {tally}" for tally in short]
        if not told:
            told = ["each request could be met by itself, but not all of them together"]
            told += [f"claim {tally.claim}: {tally}" for tally in self.tallies]
            told += map(str, self.spreads)
        told += [f"pool {pool} is being updated" for pool in self.incomplete]
        told += [f"pool {pool}" for pool in self.invalid]
        return "; ".join(told)

    @property
    def remedy(self) -> str:
        if any(isinstance(why, Held) for tally in self.tallies for why in tally.rejected):
            return (
                "it is tried again when a device is free; kubectl describe resourceclaim tells which pods use a claim"
            )
        return "it is tried again when devices, classes or nodes change"


def cut(expression: str) -> str:
    """On one line, and not longer than a sentence about it may be."""
    line = " ".join(expression.split())
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[: SHOWN_CHARACTERS - 3]}..."


def _claims(names: list[str]) -> str:
    shown = ", ".join(names[:SHOWN_CLAIMS])
    return f"claim{'s' * (len(names) > 1)} {shown}{' ...' * (len(names) > SHOWN_CLAIMS)}"


def explain(
    node: str,
    claims: Iterable[Claim],
    pools: Iterable[Pool],
    held: Mapping[DeviceID, str],
    selection: Selection,
) -> WhyNot:
    """The tallies for a question that has no answer."""
    pools = tuple(pools)
    devices = tuple(device for pool in pools if pool.usable for device in pool.devices)
    tallies: list[Tally] = []
    spreads: list[Spread] = []
    for claim in claims:
        fitting: dict[Wish, list[Device]] = {}
        for request in claim.requests:
            for wish in request.wishes:
                tally, fitting[wish] = _tally(wish, devices, held, selection)
                tallies.append(tally)
        spreads += [_spread(claim.reference, constraint, fitting) for constraint in claim.constraints]
    return WhyNot(
        node,
        tuple(tallies),
        tuple(spreads),
        tuple(str(pool) for pool in pools if pool.incomplete),
        tuple(f"{pool} is invalid: {pool.invalid}" for pool in pools if pool.invalid),
    )


def _tally(
    wish: Wish, devices: tuple[Device, ...], held: Mapping[DeviceID, str], selection: Selection
) -> tuple[Tally, list[Device]]:
    rejected: defaultdict[Why, list[DeviceID]] = defaultdict(list)
    fitting: list[Device] = []
    for device in devices:
        why = _why(wish, device, held, selection)
        if why is None:
            fitting.append(device)
        else:
            rejected[why].append(device.id)
    counted = {why: tuple(ids) for why, ids in rejected.items()}
    ids = tuple(device.id for device in fitting)
    return Tally(wish.claim, wish.name, wish.count, len(devices), counted, ids), fitting


def _why(wish: Wish, device: Device, held: Mapping[DeviceID, str], selection: Selection) -> Why | None:
    if device.id in held and not wish.admin:
        return Held(held[device.id])
    try:
        selector = selection.rejecting_selector(wish, device)
    except Refused as refused:
        return Broken(refused.reason.what)
    if selector is not None:
        return Deselected(*selector)
    if not selection.on_node(device):
        return Elsewhere()
    taint = untolerated(wish, device)
    if taint is not None:
        return Tainted(taint.get("key", ""), taint.get("value") or "", taint.get("effect", ""))
    return None


def _spread(claim: str, constraint: Constraint, fitting: Mapping[Wish, list[Device]]) -> Spread:
    devices = {device.id: device for wish, found in fitting.items() if constraint.concerns(wish) for device in found}
    counts: defaultdict[str, int] = defaultdict(int)
    for device in devices.values():
        value = value_of(device, constraint.attribute)
        counts["without it" if value is None else f"with {value[1]}"] += 1
    ordered = tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    return Spread(claim, constraint.attribute, constraint.distinct, ordered)
