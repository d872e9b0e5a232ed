"""Whether a node's devices should be published, tainted or gone, by the signs of life of its plugin.

The kubelet deletes a node's slices once when it starts and once 30 s after it lost the plugin. It never repeats that, and it
may come late, when the plugin is back already. So neither "the inventory is there" nor "the slices are there" says that
pods can be prepared; the two signs of docs/architecture.md do. All times are seconds of the controller's monotonic clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Signs:
    """What is known of one plugin instance."""

    id: str
    registered: bool
    """Whether the kubelet holds on to it, as it says itself."""
    heard_at: float
    """When a renewal of its Lease was last seen to happen. If `certain` is False: since when one is waited for."""
    certain: bool
    """False while only the stored Lease is known: who wrote it may be dead since long ago."""
    sign_at: float | None = None
    """When it last did something that we saw happen: a renewal of the Lease, or becoming registered."""


@dataclass(frozen=True, slots=True)
class NodeSigns:
    """What is known of one node."""

    instances: tuple[Signs, ...] = ()
    slices_exist: bool = False
    wiped_at: float | None = None
    """When slices of ours were deleted by somebody else, until they are published again."""


@dataclass(frozen=True, slots=True)
class Publish:
    """The slices should be there, without taint."""


@dataclass(frozen=True, slots=True)
class TaintAll:
    """The slices should stay, every device tainted NoSchedule; never NoExecute: the pods run fine."""

    why: str
    """`silent`: its Lease is not renewed. `unregistered`: the kubelet does not know it, or there is none."""


@dataclass(frozen=True, slots=True)
class StayAway:
    """There should be no slices, because nobody is alive."""

    why: str
    """As in `TaintAll`."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """There should be no slices: somebody deleted them, and nothing newer says that the plugin works."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Leave everything as it is: it is not known yet who is alive."""


Verdict = Publish | TaintAll | StayAway | Withdraw | Hold


@dataclass(frozen=True, slots=True)
class Alive:
    """An instance is registered and fresh, the last of them until that moment."""

    until: float
    sign_at: float
    """The newest sign of life of these."""


@dataclass(frozen=True, slots=True)
class Unsure:
    """One is registered, and whether its Lease is fresh is not known; by that moment it will be."""

    until: float


@dataclass(frozen=True, slots=True)
class Dead:
    """Nobody is registered and fresh."""

    why: str
    """As in `TaintAll`."""


def health_of(instances: Sequence[Signs], now: float, stale_seconds: float) -> Alive | Unsure | Dead:
    """Whether any plugin instance of a node can prepare pods. A Lease not renewed for `stale_seconds` is silence."""
    registered = [signs for signs in instances if signs.registered]
    recent = [signs for signs in registered if now < signs.heard_at + stale_seconds]
    fresh = [signs for signs in recent if signs.certain]
    if fresh:
        return Alive(
            until=max(signs.heard_at for signs in fresh) + stale_seconds,
            sign_at=max(signs.heard_at if signs.sign_at is None else signs.sign_at for signs in fresh),
        )
    if recent:
        return Unsure(until=max(signs.heard_at for signs in recent) + stale_seconds)
    return Dead("silent" if registered else "unregistered")


def judge(node: NodeSigns, health: Alive | Unsure | Dead) -> Verdict:
    """The table.

    | signs of life                                | slices exist | none    | deleted by somebody else            |
    |----------------------------------------------|--------------|---------|-------------------------------------|
    | an instance is registered and fresh          | publish      | publish | publish if a sign is newer, or away |
    | one is registered, its Lease of unknown age  | hold         | hold    | away                                |
    | nobody                                       | taint        | away    | away                                |
    """
    if node.wiped_at is not None and not (isinstance(health, Alive) and health.sign_at > node.wiped_at):
        return Withdraw()
    match health:
        case Alive():
            return Publish()
        case Unsure():
            return Hold()
        case Dead(why):
            return TaintAll(why) if node.slices_exist else StayAway(why)
