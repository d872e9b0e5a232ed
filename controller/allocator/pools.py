"""Which devices a node can use, in the order in which they are tried.

Source: dynamic-resource-allocation, structured/internal/incubating/pools_incubating.go.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from controller.allocator.nodes import reaches
from controller.allocator.question import DeviceID, Object, Question


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """A device of a slice that the node can use. Equal to itself only."""

    id: DeviceID
    raw: Object
    """As it stands in the slice."""
    slice_spec: Object
    """Of the slice it stands in."""

    @property
    def per_device(self) -> bool:
        """Whether the device itself says which nodes can use it."""
        return bool(self.slice_spec.get("perDeviceNodeSelection"))

    def attribute(self, name: str) -> Object | None:
        """By its full name; one in the driver's own domain may stand in the slice without it."""
        attributes = self.raw.get("attributes") or {}
        if name in attributes:
            return dict(attributes[name])
        domain, slash, short = name.partition("/")
        if not slash or domain != self.id.driver or short not in attributes:
            return None
        return dict(attributes[short])


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool, as seen from one node. Of one that is incomplete or invalid no device is used."""

    driver: str
    name: str
    devices: tuple[Device, ...] = ()
    incomplete: bool = False
    invalid: str = ""
    """Why the pool cannot be used, empty if it can."""

    @property
    def usable(self) -> bool:
        return not self.incomplete and not self.invalid

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"


def gather(question: Question) -> tuple[Pool, ...]:
    """The pools of the node: by driver and name, those with binding conditions last."""
    relevant: dict[tuple[str, str], list[Object]] = {}
    # A pool's slices may contradict each other while they are rewritten; then the first one is believed.
    for item in sorted(question.slices, key=lambda item: not item["spec"].get("nodeName")):
        if not _uses_groups(item) and _reaches(question.node, item):
            _add(relevant.setdefault(_pool_of(item), []), item)
    found: list[Pool] = []
    for (driver, name), slices in relevant.items():
        pool = _pool(driver, name, slices, question.slices)
        if pool is not None:
            found.append(pool)
    return tuple(sorted(found, key=lambda pool: (_binds_later(pool), pool.driver, pool.name)))


def _pool_of(item: Object) -> tuple[str, str]:
    return item["spec"]["driver"], item["spec"]["pool"]["name"]


def _generation(item: Object) -> int:
    return int(item["spec"]["pool"].get("generation") or 0)


def _reaches(node: Object, item: Object) -> bool:
    spec = item["spec"]
    if spec.get("nodeName") or spec.get("allNodes") or spec.get("nodeSelector") is not None:
        return reaches(node, spec, f"slice {item['metadata']['name']}")
    if not spec.get("perDeviceNodeSelection"):
        return False
    where = f"slice {item['metadata']['name']}, device "
    return any(reaches(node, device, where + device["name"]) for device in spec.get("devices") or ())


def _add(slices: list[Object], item: Object) -> None:
    """A newer generation replaces the older."""
    if slices and _generation(item) < _generation(slices[0]):
        return
    if slices and _generation(item) > _generation(slices[0]):
        slices.clear()
    slices.append(item)


def _pool(driver: str, name: str, slices: list[Object], everything: Iterable[Object]) -> Pool | None:
    count, generation = int(slices[0]["spec"]["pool"].get("resourceSliceCount") or 0), _generation(slices[0])
    others: list[Object] = []
    if len(slices) != count:
        # Slices of other nodes belong to the pool as well, but offer this node nothing.
        same_pool = [item for item in everything if _pool_of(item) == (driver, name)]
        if any(_generation(item) > generation for item in same_pool):
            return None  # the driver is about to replace what we see
        whole = [item for item in same_pool if _generation(item) == generation and not _uses_groups(item)]
        if len(whole) != count:
            return Pool(driver, name, incomplete=True)
        here = {item["metadata"]["name"] for item in slices}
        others = [item for item in whole if item["metadata"]["name"] not in here]
    return _built(driver, name, slices, others)


def _built(driver: str, name: str, slices: list[Object], others: list[Object]) -> Pool:
    ordered = sorted(slices, key=lambda item: str(item["metadata"]["name"]))
    counters = [item for item in (*ordered, *others) if item["spec"].get("sharedCounters")]
    with_devices = [item for item in ordered if not item["spec"].get("sharedCounters")]
    elsewhere = [item for item in others if not item["spec"].get("sharedCounters")]
    devices = tuple(
        Device(DeviceID(driver, name, raw["name"]), raw, item["spec"])
        for item in with_devices
        for raw in item["spec"].get("devices") or ()
    )
    twice = next((device for device, count in Counter(d.id.device for d in devices).items() if count > 1), None)
    invalid = f"duplicate device name {twice}" if twice else _counter_fault(counters, [*with_devices, *elsewhere])
    return Pool(driver, name, invalid=invalid) if invalid else Pool(driver, name, devices)


def _counter_fault(counters: list[Object], slices: list[Object]) -> str:
    sets: dict[str, Any] = {}
    for item in counters:
        for counter_set in item["spec"]["sharedCounters"]:
            if counter_set["name"] in sets:
                return f"duplicate counter set name {counter_set['name']}"
            sets[counter_set["name"]] = counter_set.get("counters") or {}
    for item in slices:
        for device in item["spec"].get("devices") or ():
            for use in device.get("consumesCounters") or ():
                if use["counterSet"] not in sets:
                    return f"counter set {use['counterSet']} not found"
                for counter in use.get("counters") or {}:
                    if counter not in sets[use["counterSet"]]:
                        return f"counter {counter} not found in counter set {use['counterSet']}"
    return ""


def _uses_groups(item: Object) -> bool:
    """The feature DRADeviceCompatibilityGroups is off by default: slices that use it are ignored."""
    return any(
        use.get("compatibilityGroups")
        for device in item["spec"].get("devices") or ()
        for use in device.get("consumesCounters") or ()
    )


def _binds_later(pool: Pool) -> bool:
    return any(device.raw.get("bindingConditions") is not None for device in pool.devices)
