"""What Prometheus reads of a /metrics page, by its own parsers."""

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as text

PROMETHEUS_ACCEPTS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"


def series(page, accept: str = "") -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every series of a page function: name and sorted labels → value. Each may be there once only."""
    content_type, body = page(accept)
    parse = openmetrics if "openmetrics" in content_type else text
    samples = [sample for family in parse(body.decode()) for sample in family.samples]
    found = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}
    assert len(found) == len(samples), "a series is there twice"
    return found


def values(page, name: str, accept: str = "") -> dict[tuple[str, ...], float]:
    """One metric: the values of its labels, in order of their names → value."""
    return {
        tuple(value for _, value in labels): number
        for (each, labels), number in series(page, accept).items()
        if each == name
    }


def undeclared(page, families) -> set[str]:
    """Series whose name or labels no family has; what the library tells of the process is its own business."""
    wanted = {family.name: (family.kind, set(family.labels)) for family in families}
    odd = set()
    for name, labels in series(page):
        base, extra = name, set()
        for suffix in ("_bucket", "_count", "_sum"):
            if name.endswith(suffix) and wanted.get(name.removesuffix(suffix), ("", ()))[0] == "histogram":
                base, extra = name.removesuffix(suffix), {"le"} if suffix == "_bucket" else set()
        if not name.startswith("process_") and (
            base not in wanted or {label for label, _ in labels} != wanted[base][1] | extra
        ):
            odd.add(f"{name}{dict(labels)}")
    return odd
