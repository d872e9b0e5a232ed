"""How what our programs measure is shown to Prometheus, with what both of them measure alike.

Importing this costs 40 ms and 1.3 MiB (prometheus_client 0.26), so a program does it only when it has a port to show it on.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.version import VERSION

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 45.0)
"""Upper ends of all histograms: from a prepare that finds everything in place to the 45 s after which the kubelet gives up."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: what a query names it by, and what it says."""

    name: str
    kind: str
    """`counter`, `gauge` or `histogram`; in seconds, where the name says so."""
    says: str
    labels: tuple[str, ...] = ()


Reading = tuple[Family, Sequence[str], float]
"""A metric's value for these labels, in the order of the family's."""

BUILD = Family(
    "lanewise_build_info", "gauge", "Always 1: which program this is, in which version.", ("part", "version")
)
API_REQUESTS = Family(
    "lanewise_api_requests_total",
    "counter",
    "Answers of the API server by its status; where none came, by what happened: unreached, untrusted, silent or dropped.",
    ("verb", "code"),
)
COMMON = (BUILD, API_REQUESTS)


class Registry:
    """The metrics of one program, beside what prometheus_client tells of its process. Nothing of it is global."""

    def __init__(self, part: str, families: Iterable[Family], read: Callable[[], Iterable[Reading]]) -> None:
        """`read` is asked at each scrape, for those of `families` that nobody counts through `counter` or `histogram`."""
        # When a counter began is nothing that anybody asks, and it doubles the series. The library has no type for this.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._counted: set[str] = set()
        ProcessCollector(registry=self._registry)
        requests = self.counter(API_REQUESTS)

        def requested(verb: str, code: str) -> None:
            requests.labels(verb, code).inc()

        self.requested = requested
        """Count an answer of the API server; for `api.kube.client.Client`."""
        self._families = tuple(families)
        self._build = (BUILD, (part, VERSION), 1.0)
        self._read = read

    def counter(self, family: Family) -> Counter:
        """Made, to be counted on. Each once."""
        self._counted.add(family.name)
        return Counter(family.name, family.says, family.labels, registry=self._registry)

    def histogram(self, family: Family) -> Histogram:
        """The same for durations in seconds."""
        self._counted.add(family.name)
        return Histogram(family.name, family.says, family.labels, registry=self._registry, buckets=SECONDS)

    def open(self) -> None:
        """From now on `read` may be asked: all that is counted has been made."""
        pulled = [BUILD, *(family for family in self._families if family.name not in self._counted)]
        self._registry.register(_Pulled(pulled, lambda: (self._build, *self._read())))

    def page(self, accept: str) -> tuple[str, bytes]:
        """Content type and body of /metrics, as text or OpenMetrics, whichever the caller accepts."""
        try:
            encoder, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # a version that is no number (prometheus_client 0.26)
            encoder, content_type = choose_encoder("")
        return content_type, encoder(self._registry)


class _Pulled(Collector):
    """What is looked up at each scrape instead of being kept: nothing of what has gone can be left over."""

    def __init__(self, families: Iterable[Family], read: Callable[[], Iterable[Reading]]) -> None:
        self._families = tuple(families)
        self._read = read

    def describe(self) -> Iterable[Metric]:
        """The families without values: lets the registry see that no name is there twice."""
        return [_empty(family) for family in self._families]

    def collect(self) -> Iterable[Metric]:
        """All of them as they are now."""
        found = {family.name: _empty(family) for family in self._families}
        for family, labels, value in self._read():
            found[family.name].add_metric(labels, value)
        return found.values()


def _empty(family: Family) -> GaugeMetricFamily | CounterMetricFamily:
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    return kind(family.name, family.says, labels=family.labels)
