"""What counts as a sign of life, and when it was seen. Not safe from several threads: `controller.state` has the lock."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from api.inventory import Instance
from controller.liveness import Signs


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """What matters of a Lease."""

    name: str
    renewed: str
    """`spec.renewTime` as written: compared, never read, because it is by the node's clock."""
    holder: str
    """`spec.holderIdentity`: the node whose plugin renews it (see `api.names.lease_name`). Admission lets a plugin write
    only Leases that are held by its own node, while what an inventory lists is its node's own word."""


@dataclass(slots=True)
class _Heard:
    """A Lease as it was heard of; times of our clock."""

    lease: LeaseInfo
    since: float
    """When this renewal was first seen."""
    at: float
    certain: bool
    sign_at: float | None


class LifeSigns:
    """Leases and registrations of all plugin instances."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._leases: dict[str, _Heard] = {}
        self._listed: set[tuple[str, str]] = set()
        self._first_seen: dict[str, float] = {}
        self._registered_at: dict[str, float] = {}
        self._deaf = False
        self._outages = 0
        self.leases_listed = False
        """From then on a new Lease is something that happens, not something found."""
        self.inventories_listed = False
        """From then on a new entry of an instance is something that happens."""

    def instances_are(self, node: str, before: Iterable[Instance], after: Iterable[Instance]) -> None:
        """A NodeInventory's entries changed from one set to another."""
        now = self._clock()
        old = {entry.id: entry for entry in before}
        self._listed.difference_update((node, entry.lease) for entry in old.values())
        for entry in after:
            self._first_seen.setdefault(entry.id, now)
            self._listed.add((node, entry.lease))
            if not entry.registered:
                self._registered_at.pop(entry.id, None)
            elif self.inventories_listed and _registered_anew(entry, old.get(entry.id)):
                self._registered_at[entry.id] = now
            old.pop(entry.id, None)
        for entry in old.values():
            self._first_seen.pop(entry.id, None)
            self._registered_at.pop(entry.id, None)

    def lease_is(self, lease: LeaseInfo) -> bool:
        """A Lease as stored; whether it was renewed since it was last seen."""
        now = self._clock()
        old = self._leases.get(lease.name)
        if old is not None and old.lease == lease:
            return False
        seen_happen = old is not None or self.leases_listed
        self._leases[lease.name] = _Heard(lease, now, now, seen_happen, now if seen_happen else None)
        return True

    def lease_gone(self, name: str) -> None:
        """A Lease was deleted."""
        self._leases.pop(name, None)

    def node_of(self, lease: str) -> str | None:
        """Whose Lease it is, None for one of which its holder's inventory does not speak."""
        holder = self.holder(lease)
        return holder if (holder, lease) in self._listed else None

    def holder(self, lease: str) -> str | None:
        """Who holds the Lease; None for one that was not seen."""
        heard = self._leases.get(lease)
        return heard.lease.holder if heard else None

    def listen(self, *, deaf: bool, outages: int) -> None:
        """How the watch on Leases is doing. What was missed meanwhile is not silence: all ages become unknown again.

        `outages` counts up; a smaller one is an older look, told late by another thread.
        """
        if outages < self._outages:
            return
        if deaf or self._deaf or outages > self._outages:
            now = self._clock()
            for heard in self._leases.values():
                heard.at, heard.certain = now, False
        self._deaf, self._outages = deaf, outages

    def of(self, node: str, instances: Iterable[Instance]) -> tuple[Signs, ...]:
        """What is known of each instance of the node."""
        return tuple(self._of(node, entry) for entry in instances)

    def long_silent(self, node: str, instances: Iterable[Instance], before: float) -> tuple[Instance, ...]:
        """Those of which nothing was heard since that moment."""
        return tuple(
            entry
            for entry in instances
            if (heard.since if (heard := self._heard(node, entry)) else self._first_seen.get(entry.id, before)) < before
        )

    def _heard(self, node: str, entry: Instance) -> _Heard | None:
        """The instance's Lease, unless another node holds it: that one's renewals say nothing of this one."""
        heard = self._leases.get(entry.lease)
        return heard if heard is not None and heard.lease.holder == node else None

    def _of(self, node: str, entry: Instance) -> Signs:
        heard = self._heard(node, entry)
        moments = [self._registered_at.get(entry.id), heard.sign_at if heard else None]
        return Signs(
            id=entry.id,
            registered=entry.registered,
            # The watch on Leases may be behind: an instance whose Lease was not seen yet may well be alive.
            heard_at=heard.at if heard else self._first_seen.get(entry.id, 0.0),
            certain=heard.certain if heard else False,
            sign_at=max((moment for moment in moments if moment is not None), default=None),
        )


def _registered_anew(entry: Instance, before: Instance | None) -> bool:
    return before is None or not before.registered or before.registered_at != entry.registered_at
