"""The kernel's own word that devices came or went.

Listens on the netlink socket that udevd listens on too (udev(7), lib/kobject_uevent.c of Linux) and calls back a second after
the first of a burst (again for what follows), so that a burst is few calls and a steady stream of events delays none. Only
the host's network namespace gets these messages, so a plugin without host networking hears nothing.
"""

import errno
import select
import socket
import threading
import time
from collections.abc import Callable

import structlog

_NETLINK_KOBJECT_UEVENT = 15
"""linux/netlink.h; Python's socket module does not name it."""
_KERNEL_GROUP = 1
_QUIET_SECONDS = 1.0
_SUBSYSTEMS = frozenset({"pci", "nvidia", "nvidia-uvm", "drm"})
_MESSAGE_MAX = 65536

_log = structlog.get_logger(__name__)


def open_socket() -> socket.socket | None:
    """The netlink socket; None, said at info level, where the kernel does not give one."""
    try:
        opened = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _NETLINK_KOBJECT_UEVENT)
    except (OSError, AttributeError) as error:
        _log.info("kernel events not available", why=str(error), then="the timer alone triggers discovery")
        return None
    try:
        opened.bind((0, _KERNEL_GROUP))
    except OSError as error:
        opened.close()
        _log.info("kernel events not available", why=str(error), then="the timer alone triggers discovery")
        return None
    return opened


def concerns_us(message: bytes) -> bool:
    """Whether a uevent (`ACTION@DEVPATH`, then KEY=VALUE, all ended by NUL) tells of PCI devices or the GPU driver."""
    fields = dict(part.partition("=")[::2] for part in message.decode("utf-8", "replace").split("\0"))
    if fields.get("SUBSYSTEM") == "module":
        return fields.get("DEVPATH", "").startswith("/module/nvidia")
    return fields.get("SUBSYSTEM") in _SUBSYSTEMS


class Listener:
    """Calls back after each burst of events, from a thread of its own."""

    def __init__(
        self, events: socket.socket, on_event: Callable[[], None], *, quiet_seconds: float = _QUIET_SECONDS
    ) -> None:
        """`events` is `open_socket()`'s, and closed by `stop`."""
        self._events, self._on_event, self._quiet = events, on_event, quiet_seconds
        self._events.settimeout(0)
        self._stopped, self._stop = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="uevents", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End at once, and close the socket."""
        self._stop.close()
        if self._thread.ident is not None:
            self._thread.join()
        self._stopped.close()
        self._events.close()

    def _run(self) -> None:
        due: float | None = None
        while True:
            wait = None if due is None else max(0.0, due - time.monotonic())
            ready, _, _ = select.select([self._events, self._stopped], [], [], wait)
            if self._stopped in ready:
                return
            if due is not None and time.monotonic() >= due:
                due = None
                self._on_event()
            if self._events in ready:
                try:
                    if self._read() and due is None:
                        due = time.monotonic() + self._quiet
                except OSError as error:
                    _log.warning("kernel events ended", why=str(error), then="the timer alone triggers discovery")
                    return

    def _read(self) -> bool:
        """Whether the next message concerns us. An overrun does: what was lost may have."""
        try:
            message = self._events.recv(_MESSAGE_MAX)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.ENOBUFS:
                return True
            raise
        return concerns_us(message)
