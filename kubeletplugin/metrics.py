"""What the node plugin measures.

Calls are counted as they end; all else is looked up at each scrape, so that a claim which was released leaves no series. The
labels' values are few by construction: kinds of refusals, this node's devices, and claims that are prepared right now.
"""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import Counter, Histogram

from api.hardware import Gpu
from api.metrics import COMMON, Family, Reading, Registry
from api.names import gpu_device_name
from kubeletplugin.claims.record import Record
from kubeletplugin.claims.states import Event
from kubeletplugin.seen import Seen

OK = "ok"
KINDS_MOST = 64
"""So many kinds of refusals are told apart: more than there are in the code, so that a label can never grow with what comes."""
OTHER = "Other"
"""Result of a call that was refused for yet another kind of reason."""

PREPARES = Family(
    "lanewise_prepares_total", "counter", "Prepares by result: ok, or the kind of refusal.", ("node", "result")
)
UNPREPARES = Family(
    "lanewise_unprepares_total", "counter", "Releases that the kubelet asked for, the same.", ("node", "result")
)
PREPARE_SECONDS = Family(
    "lanewise_prepare_seconds", "histogram", "How long they took, by outcome: ok or refused.", ("node", "outcome")
)
UNPREPARE_SECONDS = Family("lanewise_unprepare_seconds", "histogram", "The same of releases.", ("node", "outcome"))
CLAIMS = Family("lanewise_claims", "gauge", "Claims that are prepared now.", ("node",))
DEVICES = Family("lanewise_devices", "gauge", "GPUs by state: held by a claim, else ailing or free.", ("node", "state"))
LEFT_OUT = Family("lanewise_left_out", "gauge", "What was found and cannot be used; see spec.leftOut.", ("node",))
DEVICE_INFO = Family(
    "lanewise_device_info",
    "gauge",
    "Always 1: what a device is. The uuid is what dcgm-exporter has as UUID.",
    ("node", "device", "uuid", "pci_bus_id", "product"),
)
CLAIM_DEVICE = Family(
    "lanewise_claim_device",
    "gauge",
    "Always 1: which claim has which device now; admin is true where it has it beside others.",
    ("node", "device", "uuid", "claim_namespace", "claim_name", "claim_uid", "admin"),
)
AILMENT = Family(
    "lanewise_device_ailment",
    "gauge",
    "1 while this is the matter with the device; kinds and codes are those of the NodeInventory.",
    ("node", "device", "uuid", "kind", "code"),
)
REGISTERED = Family("lanewise_registered", "gauge", "1 while the kubelet holds on to the plugin.", ("node",))
READY = Family("lanewise_ready", "gauge", "1 while new pods can get GPUs here, as far as the plugin knows.", ("node",))
REPORT_AGE = Family(
    "lanewise_report_age_seconds",
    "gauge",
    "Since the API server last took the plugin's sign of life, which is given every 10 s.",
    ("node",),
)
EVENTS_LOST = Family("lanewise_events_lost_total", "counter", "Events that could not be written.", ("node",))

FAMILIES = (
    *COMMON,
    PREPARES,
    UNPREPARES,
    PREPARE_SECONDS,
    UNPREPARE_SECONDS,
    CLAIMS,
    DEVICES,
    LEFT_OUT,
    DEVICE_INFO,
    CLAIM_DEVICE,
    AILMENT,
    REGISTERED,
    READY,
    REPORT_AGE,
    EVENTS_LOST,
)
"""All of them; docs, dashboard and alerts are held against this."""


class Metrics:
    """Counts calls and shows the rest. `done` may be called from any thread."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._look: Callable[[], Seen] | None = None
        self._registry = registry = Registry("kubeletplugin", FAMILIES, self._read)
        self._counts = {
            Event.PREPARE: _Calls(node, registry.counter(PREPARES), registry.histogram(PREPARE_SECONDS)),
            Event.UNPREPARE: _Calls(node, registry.counter(UNPREPARES), registry.histogram(UNPREPARE_SECONDS)),
        }
        registry.open()
        self.requested = registry.requested
        self.page = registry.page

    def watch(self, look: Callable[[], Seen]) -> None:
        """Ask this at each scrape from now on."""
        self._look = look

    def done(self, event: Event, kind: str | None, seconds: float) -> None:
        """A call of the kubelet's ended: `kind` is the name of the reason it was refused for, None where it was not."""
        self._counts[event].count(kind, seconds)

    def _read(self) -> Iterable[Reading]:
        return readings(self._node, self._look()) if self._look is not None else ()


class _Calls:
    """One kind of call. Those that matter are there from the beginning: a rate needs a value before the first."""

    def __init__(self, node: str, counter: Counter, seconds: Histogram) -> None:
        self._node, self._counter = node, counter
        self._kinds: set[str] = set()
        self._ok = counter.labels(node, OK)
        self._seconds_ok, self._seconds_refused = seconds.labels(node, OK), seconds.labels(node, "refused")

    def count(self, kind: str | None, seconds: float) -> None:
        if kind is None:
            self._ok.inc()
            self._seconds_ok.observe(seconds)
        else:
            if len(self._kinds) < KINDS_MOST:
                self._kinds.add(kind)
            self._counter.labels(self._node, kind if kind in self._kinds else OTHER).inc()
            self._seconds_refused.observe(seconds)


def readings(node: str, seen: Seen) -> Iterator[Reading]:
    """All that is looked up, from one look."""
    yield CLAIMS, (node,), len(seen.records)
    yield REGISTERED, (node,), float(seen.registered)
    yield READY, (node,), float(seen.why_not_ready is None)
    yield EVENTS_LOST, (node,), seen.events_lost
    if seen.report_age_seconds is not None:
        yield REPORT_AGE, (node,), seen.report_age_seconds
    if seen.machine is not None:
        yield LEFT_OUT, (node,), len(seen.machine.left_out)
        yield from _gpus(node, seen.machine.gpus, {device for record in seen.records for device in record.exclusive})
    for record in seen.records:
        for labels in _devices(record):
            yield CLAIM_DEVICE, (node, *labels), 1


def _gpus(node: str, gpus: tuple[Gpu, ...], held: set[str]) -> Iterator[Reading]:
    states = dict.fromkeys(("held", "ailing", "free"), 0)
    for gpu in gpus:
        device = gpu_device_name(gpu.place.address)
        states["held" if device in held else "ailing" if gpu.ailments else "free"] += 1
        yield DEVICE_INFO, (node, device, gpu.uuid, str(gpu.place.address), gpu.product_name or ""), 1
        for ailment in gpu.ailments:
            yield AILMENT, (node, device, gpu.uuid, ailment.kind, ailment.code), 1
    for state, count in states.items():
        yield DEVICES, (node, state), count


def _devices(record: Record) -> Iterable[tuple[str, ...]]:
    """One for each device, however many shares or requests of the claim it serves."""
    claim = record.claim
    return dict.fromkeys(
        (item.device, item.uuid, claim.namespace, claim.name, claim.uid, str(item.admin).lower())
        for item in record.devices
    )
