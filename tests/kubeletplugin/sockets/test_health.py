"""The health stream over a real socket: what it says, and what its opening and closing tell us."""

import threading
from queue import Empty

import grpc
import pytest

from cli.sandbox.kubelet import Registry
from kubeletplugin.sockets.health import STALE_SECONDS, STREAMS_MAX, DeviceHealth
from kubeletplugin.sockets.server import CALL_WORKERS
from tests.support.plugin_sockets import Fake


@pytest.fixture
def kubelet(node):
    """Opens no stream by itself."""
    with Registry(node.registry, health_versions=()) as made:
        yield made


@pytest.fixture
def streams(kubelet):
    """Opens streams, and closes them at the end."""
    opened = []

    def open_stream(version="v1"):
        stream = next(iter(kubelet.plugins.values())).open_health(version)
        opened.append(stream)
        return stream

    yield open_stream
    for stream in opened:
        stream.close()


class Changes:
    """Waits for `registered` to have an answer, woken by the plugin itself."""

    def __init__(self):
        self.condition = threading.Condition()

    def __call__(self):
        with self.condition:
            self.condition.notify_all()

    def wait_for(self, question, timeout=10):
        with self.condition:
            return self.condition.wait_for(question, timeout)


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
def test_every_device_is_told_as_it_is(node, kubelet, streams, version):
    """Unknown, healthy or not, with its message cut to what the kubelet takes; our time replaces the kubelet's 30 s."""
    devices = [
        DeviceHealth("p", "gpu-0", None, "nobody has looked"),
        DeviceHealth("q", "gpu-1", True),
        DeviceHealth("q", "gpu-2", False, "lost" * 300),
    ]
    node.plugin(devices=lambda: devices).start()
    kubelet.scan()
    report = streams(version).report()
    assert [(entry.device.pool_name, entry.device.device_name, entry.health) for entry in report.devices] == [
        ("p", "gpu-0", 0),
        ("q", "gpu-1", 1),
        ("q", "gpu-2", 2),
    ]
    assert [entry.message for entry in report.devices][:2] == ["nobody has looked", ""]
    assert len(report.devices[2].message.encode()) <= 1024
    assert {entry.health_check_timeout_seconds for entry in report.devices} == {STALE_SECONDS}
    assert all(entry.last_updated_time > 0 for entry in report.devices)


def test_no_devices_is_said_too(node, kubelet, streams):
    """The stream opens all the same: it is the sign of being registered."""
    node.plugin(devices=list).start()
    kubelet.scan()
    assert list(streams().report().devices) == []


def test_a_change_is_said_at_once_to_every_stream(node, kubelet, streams):
    """Long before the next interval."""
    found = [DeviceHealth("p", "gpu-0")]
    plugin = node.plugin(devices=lambda: list(found), resend_seconds=3600)
    plugin.start()
    kubelet.scan()
    both = [streams("v1"), streams("v1alpha1")]
    assert [len(stream.report().devices) for stream in both] == [1, 1]
    found.append(DeviceHealth("p", "gpu-1"))
    plugin.devices_changed()
    assert [len(stream.report().devices) for stream in both] == [2, 2]


def test_all_devices_are_repeated_before_they_are_stale(node, kubelet, streams):
    """Nothing changed, and everything is said again."""
    node.plugin(resend_seconds=0.01).start()
    kubelet.scan()
    stream = streams()
    assert [len(stream.report().devices) for _ in range(3)] == [1, 1, 1]


def test_open_stream_is_what_registered_means(node, kubelet, streams):
    """It turns true with the stream and false with its end, though no call says so."""
    changes = Changes()
    plugin = node.plugin(changed=changes)
    plugin.start()
    assert not plugin.registered()
    kubelet.scan()
    stream = streams()
    stream.report()
    assert plugin.registered()
    stream.close()
    assert changes.wait_for(lambda: not plugin.registered())


def test_kubelet_that_is_gone_is_noticed_at_once(node, streams):
    """Closing its connection is enough, while the worker waits for the next interval."""
    changes = Changes()
    plugin = node.plugin(changed=changes, resend_seconds=3600)
    plugin.start()
    with Registry(node.registry) as kubelet:
        [registered] = kubelet.scan()
        registered.stream.report()
        assert plugin.registered()
    assert changes.wait_for(lambda: not plugin.registered())


def test_streams_beyond_the_limit_are_turned_away(node, kubelet, streams):
    """With a reason; the open ones go on, and a place that gets free is given again."""
    changes = Changes()
    plugin = node.plugin(changed=changes)
    plugin.start()
    kubelet.scan()
    kept = [streams() for _ in range(STREAMS_MAX)]
    for stream in kept:
        stream.report()
    extra = streams()
    assert extra.ended.wait(10)
    assert extra.error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "4 health streams are open already" in extra.error.details()

    plugin.devices_changed()
    for stream in kept:
        stream.report()
        stream.close()
    assert changes.wait_for(lambda: not plugin.registered())
    assert len(streams().report().devices) == 1


def test_streams_and_calls_do_not_starve_each_other(node, kubelet, streams):
    """All workers of the calls busy: a stream opens. All streams open: a call is answered."""
    busy, leave = threading.Semaphore(0), threading.Event()
    fake = Fake()

    def prepare(ref, cancelled):
        busy.release()
        assert leave.wait(20)
        return ()

    fake.on_prepare = prepare
    node.plugin(fake).start()
    [plugin] = kubelet.scan()
    calls = [plugin.prepare_call([("n", "c", str(number))]) for number in range(CALL_WORKERS)]
    try:
        for _ in calls:
            assert busy.acquire(timeout=10)
        for _ in range(STREAMS_MAX):
            assert len(streams().report().devices) == 1
    finally:
        leave.set()
    for call in calls:
        call.result(10)
    assert list(plugin.unprepare([("n", "c", "0")]).claims) == ["0"]


def test_stop_ends_streams_in_order(node, kubelet, streams):
    """At once, not after the grace for calls, and without an error."""
    plugin = node.plugin(resend_seconds=3600)
    plugin.start()
    kubelet.scan()
    stream = streams()
    stream.report()
    plugin.stop(grace_seconds=3600)
    assert stream.ended.wait(10)
    assert stream.error is None
    with pytest.raises(Empty):
        stream.report(timeout=0)


def test_devices_are_asked_for_without_a_lock(node, kubelet, streams):
    """A slow answer for one stream does not keep another from hearing, nor anyone from telling a change."""
    entered, leave, calls = threading.Event(), threading.Event(), []

    def devices():
        calls.append(1)
        if len(calls) == 1:
            entered.set()
            assert leave.wait(10)
        return [DeviceHealth("p", "gpu-0")]

    plugin = node.plugin(devices=devices)
    plugin.start()
    kubelet.scan()
    slow = streams()
    try:
        assert entered.wait(10)
        plugin.devices_changed()
        assert len(streams().report().devices) == 1
    finally:
        leave.set()
    assert len(slow.report().devices) == 1
