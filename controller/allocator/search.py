"""The search for the first set of devices that meets all claims, in the order in which upstream tries them.

Source: dynamic-resource-allocation, structured/internal/incubating/allocator_incubating.go: allocateOne and
allocateDevice. It is exhaustive: claims, requests, alternatives and devices in their order, back one step on a dead end.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from api.refusals import Refused
from controller.allocator.constraints import Tracker, tracker
from controller.allocator.pools import Device, Pool
from controller.allocator.question import DeviceID
from controller.allocator.refusals import Insoluble, TooLong, Unsupported
from controller.allocator.selection import Selection, untolerated
from controller.allocator.wishes import Claim, Wish

MAX_RESULTS = 32
"""So many devices fit into one claim's allocation (resource.k8s.io/v1, AllocationResultsMaxSize)."""
_KNOWN_OF_DEVICE = frozenset(
    ("name", "attributes", "capacity", "taints", "nodeName", "nodeSelector", "allNodes", "bindsToNode")
)


@dataclass(frozen=True, slots=True)
class Picked:
    """A device given to a wish."""

    wish: Wish
    device: Device


@dataclass(frozen=True, slots=True)
class Solution:
    """What the search found: per claim the devices in order, and which wish of each request was met."""

    picked: tuple[tuple[Picked, ...], ...]
    met: Mapping[tuple[int, int], Wish]
    """By the index of the claim and of the request in it."""


class _TooManyDevicesError(Exception):
    """The claim would get more devices than fit into an allocation; only fewer devices earlier on can help."""


@dataclass(frozen=True, slots=True)
class _At:
    """Where the search stands: the next device to find."""

    claim: int
    request: int = 0
    wish: int = 0
    device: int = 0


class Search:
    """One search. `solution` may be called once."""

    def __init__(
        self,
        claims: tuple[Claim, ...],
        pools: tuple[Pool, ...],
        held: Mapping[DeviceID, str],
        selection: Selection,
        wanted: Mapping[Wish, tuple[Device, ...]],
        *,
        max_steps: int,
    ) -> None:
        """`wanted` has the devices of each wish for all of them."""
        self._claims = claims
        self._devices = tuple(device for pool in pools if pool.usable for device in pool.devices)
        self._held = held
        self._selection = selection
        self._wanted = wanted
        self._steps_left = self._max_steps = max_steps
        self._trackers: tuple[tuple[Tracker, ...], ...] = tuple(
            tuple(tracker(constraint) for constraint in claim.constraints) for claim in claims
        )
        self._picked: tuple[list[Picked], ...] = tuple([] for _ in claims)
        self._picking: dict[DeviceID, set[int]] = defaultdict(set)
        """For which claims, by index, a device is picked at the moment: several where access is for administration."""
        self._met: dict[tuple[int, int], Wish] = {}

    def solution(self) -> Solution | None:
        """The first one; None when there is none. Refused where upstream ends with an error, or for the unsupported."""
        try:
            if not self._one(_At(0), alternative=False, start=0):
                return None
        except _TooManyDevicesError:
            problem = f"it would get more than {MAX_RESULTS} devices"
            raise Refused(
                Insoluble(f"claim {self._claims[0].reference}", problem, "split it into several claims")
            ) from None
        except RecursionError:
            claims = ", ".join(claim.reference for claim in self._claims)
            raise Refused(Unsupported(f"claims {claims}", "so many devices for one pod")) from None
        return Solution(tuple(map(tuple, self._picked)), dict(self._met))

    def _one(self, at: _At, *, alternative: bool, start: int) -> bool:
        """Find the device at `at` and everything after it. `alternative`: at.wish is settled; `start`: first candidate.

        Within one request the order of devices does not matter, so the next device is looked for behind the last.
        """
        self._count_step()
        if at.claim >= len(self._claims):
            return True
        claim = self._claims[at.claim]
        if at.request >= len(claim.requests):
            try:
                return self._one(_At(at.claim + 1), alternative=False, start=0)
            except _TooManyDevicesError:
                return False  # other devices for this claim may leave the next one an alternative with fewer
        request = claim.requests[at.request]
        if request.has_alternatives and not alternative:
            return self._alternatives(at, request.wishes)
        wish = request.wishes[at.wish]
        everything = self._wanted[wish] if wish.count is None else None
        if everything == ():
            return False
        count = wish.count if wish.count is not None else len(self._wanted[wish])
        if at.device >= count:
            self._met[at.claim, at.request] = wish
            return self._one(_At(at.claim, at.request + 1), alternative=False, start=0)
        if count - at.device > MAX_RESULTS - len(self._picked[at.claim]):
            raise _TooManyDevicesError
        if everything is not None:
            return self._all(at, wish, everything[at.device], alternative=alternative)
        return self._first_fit(at, wish, start, alternative=alternative)

    def _alternatives(self, at: _At, wishes: tuple[Wish, ...]) -> bool:
        only_too_many = True
        for index in range(len(wishes)):
            try:
                if self._one(_At(at.claim, at.request, index, at.device), alternative=True, start=0):
                    return True
            except _TooManyDevicesError:
                continue
            only_too_many = False
        if only_too_many:
            raise _TooManyDevicesError
        return False

    def _all(self, at: _At, wish: Wish, device: Device, *, alternative: bool) -> bool:
        """Of all devices each has to be had, so there is nothing else to try."""
        if not self._take(at.claim, wish, device, must=True):
            return False
        return self._after(at, wish, device, start=0, alternative=alternative)

    def _first_fit(self, at: _At, wish: Wish, start: int, *, alternative: bool) -> bool:
        for index in range(start, len(self._devices)):
            device = self._devices[index]
            # The cheap check comes first; a selector that would fail on a device in use must not be run.
            if self._in_use(at.claim, wish, device.id) or not self._selection.selectable(wish, device):
                continue
            if not self._take(at.claim, wish, device, must=False):
                continue
            if self._after(at, wish, device, start=index + 1, alternative=alternative):
                return True
        return False

    def _after(self, at: _At, wish: Wish, device: Device, *, start: int, alternative: bool) -> bool:
        """Go on behind a device that was taken, and give it back where that leads nowhere."""
        done = False
        try:
            done = self._one(_At(at.claim, at.request, at.wish, at.device + 1), alternative=alternative, start=start)
        finally:
            if not done:
                self._give_back(at.claim, wish, device)
        return done

    def _in_use(self, claim: int, wish: Wish, device: DeviceID) -> bool:
        picking = self._picking.get(device) or ()
        return claim in picking if wish.admin else device in self._held or bool(picking)

    def _take(self, claim: int, wish: Wish, device: Device, *, must: bool) -> bool:
        if self._in_use(claim, wish, device.id) or untolerated(wish, device) is not None:
            return False
        _check_supported(device)
        added: list[Tracker] = []
        for constraint in self._trackers[claim]:
            if not constraint.add(wish, device):
                for earlier in reversed(added):
                    earlier.remove(wish, device)
                if must:
                    problem = f"it asks for all devices, and {device.id} does not keep to a constraint of the claim"
                    raise Refused(Insoluble(wish.where, problem, "leave the constraint out, or select fewer devices"))
                return False
            added.append(constraint)
        self._picking[device.id].add(claim)
        self._picked[claim].append(Picked(wish, device))
        return True

    def _give_back(self, claim: int, wish: Wish, device: Device) -> None:
        self._picked[claim].pop()
        self._picking[device.id].discard(claim)
        for constraint in reversed(self._trackers[claim]):
            constraint.remove(wish, device)

    def _count_step(self) -> None:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise Refused(TooLong(tuple(claim.reference for claim in self._claims), self._max_steps))


def _check_supported(device: Device) -> None:
    """A device that would be picked has to be understood in full; others do not matter."""
    where = f"device {device.id}"
    for field, value in device.raw.items():
        if field not in _KNOWN_OF_DEVICE and value not in (None, False, [], {}):
            raise Refused(Unsupported(where, field))
    for name, capacity in (device.raw.get("capacity") or {}).items():
        if capacity.get("requestPolicy"):
            raise Refused(Unsupported(where, f"capacity {name} with a requestPolicy"))
    if device.slice_spec.get("skipNodeOperations"):
        raise Refused(Unsupported(where, "skipNodeOperations of its slice"))
