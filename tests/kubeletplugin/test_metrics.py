"""What Prometheus reads of the node plugin."""

import time
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from api.health import Ailment
from kubeletplugin import metrics as module
from kubeletplugin.claims import refusals
from kubeletplugin.claims.record import Record, RecordedDevice
from kubeletplugin.claims.states import Event
from kubeletplugin.metrics import FAMILIES, OK, Metrics
from tests.support.claims_world import NODE, POOL, World, a_claim, a_machine, a_ref, a_result, device, prepare, refusal
from tests.support.scraping import PROMETHEUS_ACCEPTS, series, undeclared, values
from tests.support.seen import a_look, a_record
from tools.docs import reasons

LOST = Ailment("lost", "off-the-bus", "2026-11-30T00:00:00Z", "the GPU has fallen off the bus", "reboot the node")


@pytest.fixture
def metrics():
    made = Metrics(NODE)
    made.watch(a_look)
    return made


def test_before_anything_is_known_there_is_a_page():
    """The port is open before the plugin is put together; what calls will be counted by is there from the beginning."""
    page = Metrics(NODE).page
    assert values(page, "lanewise_prepares_total") == {(NODE, OK): 0}
    assert values(page, "lanewise_prepare_seconds_count") == {(NODE, "ok"): 0, (NODE, "refused"): 0}
    assert values(page, "lanewise_build_info") == {("kubeletplugin", "0.1.0"): 1}
    assert "process_resident_memory_bytes" in {name for name, _ in series(page)}


@pytest.mark.parametrize("accept", ["", PROMETHEUS_ACCEPTS], ids=["text", "OpenMetrics"])
def test_both_formats_tell_the_same(metrics, accept):
    """Prometheus asks for OpenMetrics; a person with curl gets text."""
    metrics.done(Event.PREPARE, None, 0.003)
    metrics.done(Event.UNPREPARE, "DiskTrouble", 0.1)
    metrics.requested("GET", "200")
    content_type = metrics.page(accept)[0]
    assert content_type.startswith("application/openmetrics-text" if accept else "text/plain")
    assert values(metrics.page, "lanewise_prepares_total", accept) == {(NODE, OK): 1}
    assert values(metrics.page, "lanewise_unprepares_total", accept) == {(NODE, OK): 0, (NODE, "DiskTrouble"): 1}
    assert values(metrics.page, "lanewise_api_requests_total", accept) == {("200", "GET"): 1}
    assert values(metrics.page, "lanewise_devices", accept) == {
        (NODE, "free"): 4,
        (NODE, "held"): 0,
        (NODE, "ailing"): 0,
    }


@pytest.mark.parametrize("version", ["abc", "1.x", "\u00ff"])
def test_who_asks_for_a_version_that_is_none_gets_text(metrics, version):
    """Whoever reaches the port may say anything; it is no fault of ours to write a traceback about."""
    for kind in ("application/openmetrics-text", "text/plain"):
        assert metrics.page(f"{kind}; version={version}")[0].startswith("text/plain")


def test_buckets_reach_from_a_millisecond_to_the_kubelets_patience(metrics):
    """45 s is when it gives a call up."""
    for seconds in (0.0005, 0.003, 44.0, 100.0):
        metrics.done(Event.PREPARE, None, seconds)
    counts = {
        float(le): count
        for (le, _, outcome), count in values(metrics.page, "lanewise_prepare_seconds_bucket").items()
        if outcome == "ok"
    }
    assert (min(counts), max(counts)) == (0.001, float("inf"))
    assert (counts[0.001], counts[0.002], counts[0.005], counts[20.0], counts[45.0]) == (1, 1, 2, 2, 3)


def test_who_has_what(metrics):
    """By claim and by the GPU's uuid; admin access is beside the holder, and holds nothing."""
    metrics.watch(lambda: a_look(records=(a_record(1, 0, 2), a_record(2, 0, admin=True))))
    labels = {
        tuple(sorted(dict(labels).items()))
        for (name, labels) in series(metrics.page)
        if name == "lanewise_claim_device"
    }
    assert labels == {
        tuple(
            sorted(
                {
                    "node": NODE,
                    "device": device(n),
                    "uuid": f"GPU-{0x65 + n:02x}",
                    "claim_namespace": "team-a",
                    "claim_name": f"train-{claim}",
                    "claim_uid": f"uid-{claim}",
                    "admin": admin,
                }.items()
            )
        )
        for claim, n, admin in ((1, 0, "false"), (1, 2, "false"), (2, 0, "true"))
    }
    assert values(metrics.page, "lanewise_claims") == {(NODE,): 2}
    assert values(metrics.page, "lanewise_devices") == {(NODE, "free"): 2, (NODE, "held"): 2, (NODE, "ailing"): 0}


def test_one_device_of_two_shares_is_one_series(metrics):
    """Two would be the same series twice, and Prometheus would refuse the whole page."""
    shares = tuple(RecordedDevice(POOL, device(0), ("gpu",), share_id=share, uuid="GPU-65") for share in ("s1", "s2"))
    metrics.watch(lambda: a_look(records=(Record(a_ref(1), "boot-1", shares),)))
    assert len(values(metrics.page, "lanewise_claim_device")) == 1


def test_what_a_device_is(metrics):
    """Joined with others' metrics by uuid, or by PCI address."""
    (first, *_), info = (
        sorted(values(metrics.page, "lanewise_device_info")),
        values(metrics.page, "lanewise_device_info"),
    )
    assert len(info) == 4
    assert first == (device(0), NODE, "0000:65:00.0", "NVIDIA H100", "GPU-65")


def test_ailments(metrics):
    """By kind and code; a held device that ails counts as held, for its pod runs."""
    machine = a_machine(4)
    gpus = (replace(machine.gpus[0], ailments=(LOST,)), replace(machine.gpus[1], ailments=(LOST,)), *machine.gpus[2:])
    metrics.watch(lambda: a_look(machine=replace(machine, gpus=gpus), records=(a_record(1, 0),)))
    assert values(metrics.page, "lanewise_device_ailment") == {
        ("off-the-bus", device(n), "lost", NODE, f"GPU-{0x65 + n:02x}"): 1 for n in (0, 1)
    }
    assert values(metrics.page, "lanewise_devices") == {(NODE, "free"): 2, (NODE, "held"): 1, (NODE, "ailing"): 1}


def test_a_plugin_that_cannot_work_says_so(metrics):
    """No hardware, no kubelet, no API server: no devices rather than none, and no age rather than zero."""
    metrics.watch(
        lambda: a_look(
            machine=None, registered=False, why_not_ready="no driver", report_age_seconds=None, events_lost=3
        )
    )
    found = {name for name, _ in series(metrics.page)}
    assert not found & {"lanewise_devices", "lanewise_device_info", "lanewise_report_age_seconds"}
    assert values(metrics.page, "lanewise_registered") == values(metrics.page, "lanewise_ready") == {(NODE,): 0}
    assert values(metrics.page, "lanewise_events_lost_total") == {(NODE,): 3}


def test_every_series_is_declared(metrics):
    """Docs, alerts and dashboard are held against the declarations, so these must be all there is."""
    metrics.done(Event.PREPARE, "Held", 0.1)
    metrics.requested("GET", "unreached")
    machine = a_machine(1)
    ailing = replace(machine, gpus=(replace(machine.gpus[0], ailments=(LOST,)),))
    metrics.watch(lambda: a_look(machine=ailing, records=(a_record(1, 0),)))
    assert undeclared(metrics.page, FAMILIES) == set()
    seen = {name for name, _ in series(metrics.page)}
    assert [f.name for f in FAMILIES if f.kind != "histogram" and f.name not in seen] == []


def test_kinds_of_refusals_are_told_apart(metrics):
    """All that the code has, and some room; whatever comes beyond is counted as other."""
    kinds = {kind.__name__ for kind in reasons(refusals)}
    assert len(kinds) < module.KINDS_MOST / 2
    for kind in (*sorted(kinds), *(f"Invented{number}" for number in range(100)), "Held"):
        metrics.done(Event.PREPARE, kind, 0.1)
    counted = values(metrics.page, "lanewise_prepares_total")
    assert kinds <= {result for _, result in counted}
    assert len(counted) == 1 + module.KINDS_MOST + 1
    assert counted[(NODE, "Held")] == 2
    assert counted[(NODE, module.OTHER)] == len(kinds) + 100 - module.KINDS_MOST


def test_series_do_not_grow_with_the_claims_that_came_and_went(tmp_path):
    """10 000 of them, each with a name of its own, prepared and released, and as many refused: label cardinality is bounded."""
    world, metrics = World(tmp_path), Metrics(NODE)
    claims = world.claims()
    metrics.watch(lambda: a_look(records=claims.records()))
    fetched = {}
    claims._fetch = lambda ref: fetched[ref]  # one at a time: a world of 10 000 claims is not what is tested
    claims._done = metrics.done
    with capture_logs():
        sizes = []
        for number in range(10_000):
            ref = a_ref(number)
            if number < 100:  # the whole way, on disk
                fetched[ref] = a_claim(ref, a_result(number % 4))
                prepare(claims, ref)
                sizes.append(len(series(metrics.page)))
                if number == 0:
                    held = sizes[0]
                claims.unprepare(ref)
            else:
                metrics.done(Event.PREPARE, None, 0.003)
                metrics.done(Event.PREPARE, f"Reason{number}", 0.003)
                metrics.done(Event.UNPREPARE, None, 0.002)
    assert set(sizes) == {held}
    assert len(series(metrics.page)) == held - 1 + module.KINDS_MOST + 1, (
        "the claim's went; the kinds' came, up to their bound"
    )
    assert values(metrics.page, "lanewise_claims") == {(NODE,): 0}
    assert values(metrics.page, "lanewise_prepares_total")[(NODE, OK)] == 10_000


def test_calls_are_counted_as_they_end(world):
    """By what was done, and the kind of refusal; a repeated prepare counts again."""
    claims = world.claims()
    first, second = world.allocate(a_claim(a_ref(1), 0)), world.allocate(a_claim(a_ref(2), 0))
    prepare(claims, first)
    prepare(claims, first)
    refusal(lambda: prepare(claims, second))
    claims.unprepare(first)
    assert [(event, kind) for event, kind, _ in world.done] == [
        (Event.PREPARE, None),
        (Event.PREPARE, None),
        (Event.PREPARE, "Held"),
        (Event.UNPREPARE, None),
    ]
    assert all(0 < seconds < 1 for *_, seconds in world.done)


def test_counting_a_call_costs_microseconds(metrics):
    """A prepare is three milliseconds; what is counted of it must not be seen in it."""
    best = min(_seconds_of(lambda: metrics.done(Event.PREPARE, None, 0.003)) for _ in range(20))
    assert best < 100e-6


def _seconds_of(call) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)
