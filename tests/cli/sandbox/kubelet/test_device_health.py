"""What the kubelet makes of health reports."""

import pytest

from cli.sandbox.kubelet.health import DeviceHealth
from proto.health.v1 import health_pb2 as v1
from tests.support.kubelet_world import Clock

HEALTHY, UNHEALTHY = v1.HealthStatus.HEALTHY, v1.HealthStatus.UNHEALTHY


def _report(health, name="gpu-0", message="", timeout=0):
    device = v1.DeviceIdentifier(pool_name="p", device_name=name)
    each = v1.DeviceHealth(device=device, health=health, message=message, health_check_timeout_seconds=timeout)
    return v1.NodeWatchResourcesResponse(devices=[each])


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def health(clock):
    return DeviceHealth(clock)


def test_the_same_again_is_no_change(health):
    """Pods are looked at only when something is new."""
    assert health.take("d", _report(HEALTHY))
    assert not health.take("d", _report(HEALTHY))
    assert health.take("d", _report(UNHEALTHY, message="lost"))
    assert health.of("d", "p", "gpu-0") == ("Unhealthy", "lost")


@pytest.mark.parametrize(("timeout", "seconds"), [(0, 30.0), (-5, 30.0), (60, 60.0)])
def test_report_gets_stale(health, clock, timeout, seconds):
    """After 30 s, or what the report asks for; with its message."""
    health.take("d", _report(UNHEALTHY, message="lost", timeout=timeout))
    clock.time += seconds
    assert health.of("d", "p", "gpu-0") == ("Unhealthy", "lost")
    clock.time += 0.1
    assert health.of("d", "p", "gpu-0") == ("Unknown", "")


def test_device_that_is_not_named_keeps_its_state_until_stale(health, clock):
    """Reports may be partial; the next one after that notices."""
    health.take("d", _report(HEALTHY))
    health.take("d", _report(HEALTHY, "gpu-1"))
    assert health.of("d", "p", "gpu-0") == ("Healthy", "")
    clock.time += 31.0
    assert health.take("d", _report(HEALTHY, "gpu-1"))


def test_end_of_a_stream_makes_all_of_the_driver_unknown(health):
    """And nothing of others."""
    for driver in ("d", "e"):
        health.take(driver, _report(HEALTHY))
    health.clear("d")
    assert health.of("d", "p", "gpu-0") == ("Unknown", "")
    assert health.of("e", "p", "gpu-0") == ("Healthy", "")


def test_long_message_is_cut(health):
    """To the 1024 bytes that the API takes."""
    health.take("d", _report(UNHEALTHY, message="x" * 2000))
    _, message = health.of("d", "p", "gpu-0")
    assert message == "x" * 1021 + "..."
