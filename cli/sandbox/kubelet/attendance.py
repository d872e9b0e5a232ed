"""Watching over the plugins: who is new, who is gone, who has to be asked again.

One thread, which alone changes the registry. Source: pkg/kubelet/pluginmanager (a turn of its reconciler, and its backoff)
and pkg/kubelet/cm/dra/plugin (streams and wipes).
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from cli.sandbox.kubelet.plugin import Plugin
from cli.sandbox.kubelet.registry import NotRegistered, Registry
from cli.sandbox.kubelet.wipes import PendingWipes

_log = structlog.get_logger(__name__)

TURN_SECONDS = 0.1
"""The kubelet is woken by the kernel when a socket comes or goes, and looks once a second besides."""
STREAM_SECONDS = 5.0
"""A health stream that has ended is opened anew after this long, unless the plugin does not serve it."""
FIRST_SECONDS, LIMIT_SECONDS = 0.5, 122.0
"""A socket that could not be registered is tried again after this, doubled each time (volume/util's exponential backoff)."""


class Attendance:
    """`wipe` is called with each driver whose slices are due to go."""

    def __init__(
        self,
        registry: Registry,
        wipe: Callable[[str], object],
        *,
        clock: Callable[[], float] = time.monotonic,
        turn_seconds: float = TURN_SECONDS,
    ) -> None:
        """`clock`, in seconds, is that of all its waits but the one between two turns."""
        self._registry = registry
        self._wipe = wipe
        self._clock = clock
        self._turn_seconds = turn_seconds
        self._pending = PendingWipes()
        self._usable: dict[str, bool] = {}
        self._retry: dict[Path, tuple[float, float]] = {}
        """When a socket may be tried again, and how long it then waits."""
        self._reopen: dict[Plugin, float] = {}
        self._looked = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet-plugins", daemon=True)

    def start(self, patience_seconds: float = 1.0) -> None:
        """Begin to look. Returns after the first turn, so that no pod is tried before the plugins that are there are known; or
        when a plugin takes longer than that to answer."""
        self._thread.start()
        self._looked.wait(patience_seconds)

    def stop(self) -> None:
        """End, and close all connections."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(10.0)
        self._registry.close()

    def turn(self) -> None:
        """Look once at everything: sockets that are gone, then new ones, then streams, then wipes."""
        there = self._registry.sockets()
        for plugin in self._registry.forget_gone(there):
            _log.info("plugin deregistered", driver=plugin.driver, socket=str(plugin.socket))
            self._reopen.pop(plugin, None)
            self._note(plugin.driver)
        for path in there:
            if path not in self._registry.plugins:
                self._try(path)
        self._reopen_streams()
        for driver in {plugin.driver for plugin in self._registry.plugins.values()}:
            if self._registry.usable(driver) != self._usable.get(driver):
                self._note(driver)
        for driver in self._pending.due(self._clock()):
            self._wipe(driver)

    def _try(self, path: Path) -> None:
        now = self._clock()
        at, wait = self._retry.get(path, (now, FIRST_SECONDS))
        if now < at:
            return
        try:
            plugin = self._registry.register(path)
        except NotRegistered as why:
            _log.warning("plugin could not be registered", why=str(why))
            self._retry[path] = (now + wait, min(2 * wait, LIMIT_SECONDS))
            if why.driver is not None:
                self._note(why.driver)
        else:
            _log.info("plugin registered", driver=plugin.driver, socket=str(plugin.socket))
            self._retry.pop(path, None)
            self._note(plugin.driver)

    def _reopen_streams(self) -> None:
        for plugin in self._registry.plugins.values():
            if plugin.stream is None or not plugin.stream.ended.is_set() or plugin.stream.unserved:
                continue
            at = self._reopen.setdefault(plugin, self._clock() + STREAM_SECONDS)
            # One that could only fail would pass for a connection until it has.
            if self._clock() >= at and plugin.listens:
                del self._reopen[plugin]
                plugin.stream.close()
                self._registry.watch_health(plugin)

    def _note(self, driver: str) -> None:
        usable = self._usable[driver] = self._registry.usable(driver)
        self._pending.note(driver, usable=usable, now=self._clock())

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.turn()
            except Exception:  # noqa: BLE001  # the edge of a turn: a thread that dies would leave the node without plugins
                _log.exception("plugins could not be looked at")
            self._looked.set()
            self._stopping.wait(self._turn_seconds)
