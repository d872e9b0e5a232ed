"""The kernel's events as a trigger."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
import structlog.testing

from kubeletplugin.discovery import uevents


@contextlib.contextmanager
def a_listener(*, quiet_seconds: float = 0.01) -> Iterator[tuple[socket.socket, threading.Semaphore]]:
    """The kernel's end of the socket, and a semaphore that counts callbacks."""
    kernel, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard = threading.Semaphore(0)
    listener = uevents.Listener(ours, heard.release, quiet_seconds=quiet_seconds)
    listener.start()
    try:
        with kernel:
            yield kernel, heard
    finally:
        listener.stop()


def an_event(**fields: str) -> bytes:
    return b"\0".join([b"add@/devices/x", *(f"{name}={value}".encode() for name, value in fields.items())]) + b"\0"


@pytest.mark.parametrize(
    ("event", "concerns"),
    [
        (an_event(ACTION="add", SUBSYSTEM="pci", PCI_ID="10DE:2330"), True),
        (an_event(ACTION="remove", SUBSYSTEM="drm"), True),
        (an_event(ACTION="add", SUBSYSTEM="module", DEVPATH="/module/nvidia_uvm"), True),
        (an_event(ACTION="add", SUBSYSTEM="module", DEVPATH="/module/ext4"), False),
        (an_event(ACTION="add", SUBSYSTEM="block"), False),
        (b"libudev\0\xfe\xed\xca\xfe", False),
        (b"", False),
    ],
)
def test_events_of_pci_and_the_driver_concern_us(event: bytes, concerns: bool) -> None:
    """Disks and containers come and go all day."""
    assert uevents.concerns_us(event) is concerns


def test_burst_is_one_call_and_other_events_are_none() -> None:
    """A driver that loads sends dozens."""
    with a_listener(quiet_seconds=0.2) as (kernel, heard):
        for _ in range(20):
            kernel.send(an_event(SUBSYSTEM="block"))
            kernel.send(an_event(SUBSYSTEM="pci"))
        assert heard.acquire(timeout=10)
    assert not heard.acquire(blocking=False)


def test_event_after_a_burst_is_a_call_of_its_own() -> None:
    """Nothing that comes later is lost."""
    with a_listener() as (kernel, heard):
        for _ in range(2):
            kernel.send(an_event(SUBSYSTEM="nvidia"))
            assert heard.acquire(timeout=10)


def test_refused_socket_is_said_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel does not permit it the timer does the work."""

    def refuse(*_: object) -> socket.socket:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket, "socket", refuse)
    with structlog.testing.capture_logs() as logs:
        assert uevents.open_socket() is None
    assert logs[0]["event"] == "kernel events not available"


def test_real_socket_opens_and_stops_at_once() -> None:
    """On this kernel, where it permits it."""
    events = uevents.open_socket()
    if events is None:
        pytest.skip("no netlink here")
    listener = uevents.Listener(events, lambda: None)
    listener.start()
    listener.stop()
    assert events.fileno() == -1
