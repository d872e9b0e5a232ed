"""The plugin as the kubelet meets it: two sockets, in the right order up and in the right order down."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc
import structlog

from api.refusals import BadInput, Refused
from kubeletplugin.sockets import registered, socketfiles
from kubeletplugin.sockets.dra import Preparer, dra_handlers
from kubeletplugin.sockets.health import RESEND_SECONDS, Devices, HealthStreams
from kubeletplugin.sockets.paths import SocketPaths, ours_in_plugin_dir, ours_in_registry
from kubeletplugin.sockets.registration import registration_handlers
from kubeletplugin.sockets.socketfiles import SocketFile

CALL_WORKERS = 32
"""Calls that run at a time; the kubelet makes one for each pod that starts or ends, each up to 45 s long. More wait."""

GRACE_SECONDS = 10.0
"""What calls in flight get at a stop: less than the 30 s that a pod has, more than a prepare takes."""

_SETTLE_SECONDS = 5.0
"""How long gRPC may take to notice that the calls it cancelled are over."""

_log = structlog.get_logger(__name__)


class KubeletSockets:
    """One plugin instance's sockets. May be started again after a stop. `start` and `stop` are called by one thread."""

    def __init__(
        self,
        paths: SocketPaths,
        preparer: Preparer,
        devices: Devices,
        *,
        changed: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
        resend_seconds: float = RESEND_SECONDS,
    ) -> None:
        """`changed` is called whenever `registered` may have another answer, from gRPC's threads; it must neither block nor
        raise. Time alone changes the answer too: see `next_change`.
        """
        self._paths = paths
        self._preparer = preparer
        self._devices = devices
        self._changed = changed
        self._monotonic = monotonic
        self._resend_seconds = resend_seconds
        self._running: _Running | None = None

    def start(self) -> None:
        """Remove what dead instances left, and listen. The kubelet may call before this returns.

        Refused(BadInput) when a directory or socket cannot be used; nothing is left listening then.
        """
        if self._running is not None:
            return
        self._make_directories()
        self._sweep()
        running = _Running.prepare(self._paths, self._preparer, self._devices, self._watch(), self._resend_seconds)
        try:
            running.listen(self._paths)
        except BaseException:
            running.stop(0)
            raise
        self._running = running
        _log.info("sockets opened", registration=str(self._paths.registration), dra=str(self._paths.dra))

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Tell the kubelet to forget us, let calls in flight end, and take the sockets away. Repeatable; claims stay prepared.

        After `grace_seconds` calls are cancelled: their `cancelled` turns true, their answers go nowhere.
        """
        running, self._running = self._running, None
        if running is not None:
            running.stop(grace_seconds)
            _log.info("sockets closed", registration=str(self._paths.registration), dra=str(self._paths.dra))

    def devices_changed(self) -> None:
        """Report all devices to the kubelet now rather than at the next interval."""
        if (running := self._running) is not None:
            running.health.changed()

    def sockets_in_place(self) -> bool:
        """Whether both paths still lead to us. If not, nobody can mend that but a stop and a start, or a restart."""
        return (running := self._running) is not None and running.in_place()

    def registered(self) -> bool:
        """Whether the kubelet holds on to us now (module `registered` has the rule)."""
        if (running := self._running) is None:
            return False
        if not running.in_place():
            running.miss()
        return registered.registered(running.watch.seen(), self._monotonic())

    def next_change(self) -> float | None:
        """In how many seconds `registered` turns true if nothing happens meanwhile; None when it does not."""
        if (running := self._running) is None:
            return None
        now = self._monotonic()
        at = registered.next_change(running.watch.seen(), now)
        return None if at is None else max(0.0, at - now)

    def _watch(self) -> "_Watch":
        return _Watch(self._changed, self._monotonic)

    def _make_directories(self) -> None:
        registry, plugin_dir = self._paths.registration.parent, self._paths.dra.parent
        if not registry.is_dir():
            remedy = "mount the kubelet's plugins_registry from the host, or name the right directory"
            raise Refused(
                BadInput(str(registry), "is no directory, so the kubelet does not look there for plugins", remedy)
            )
        try:
            plugin_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
        except OSError as error:
            raise Refused(
                BadInput(str(plugin_dir), f"cannot be made: {error.strerror}", "make it, or name another")
            ) from error

    def _sweep(self) -> None:
        """A SIGKILL leaves sockets behind, which a restarted kubelet goes on dialling (pkg/kubelet/pluginmanager)."""
        registry, plugin_dir = self._paths.registration.parent, self._paths.dra.parent
        try:
            mine = sorted(path.name for path in plugin_dir.iterdir())
            theirs = sorted(path.name for path in registry.iterdir())
        except OSError as error:
            raise Refused(
                BadInput(str(error.filename), f"cannot be read: {error.strerror}", "give the plugin access")
            ) from error
        swept = socketfiles.sweep(registry, ours_in_registry(self._paths.driver, theirs, mine))
        swept += socketfiles.sweep(plugin_dir, ours_in_plugin_dir(self._paths.driver, mine))
        if swept:
            _log.info("left over sockets removed", paths=[str(path) for path in swept])


class _Watch:
    """Signs as they come in from gRPC's threads.

    Lock order: `_lock` is a leaf; `changed` is called without it.
    """

    def __init__(self, changed: Callable[[], None], monotonic: Callable[[], float]) -> None:
        self._changed = changed
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._seen = registered.Seen()

    def seen(self) -> registered.Seen:
        with self._lock:
            return self._seen

    def see(self, sign: registered.Sign) -> None:
        with self._lock:
            before, self._seen = self._seen, registered.after(self._seen, sign)
            same = before == self._seen
        if not same:
            self._changed()

    def notified(self, error: str | None) -> None:
        self.see(registered.Notified(error, self._monotonic()))

    def opened(self) -> None:
        self.see(registered.StreamOpened())

    def closed(self) -> None:
        self.see(registered.StreamClosed())


@dataclass(slots=True)
class _Running:
    """What exists between one start and its stop."""

    dra: grpc.Server
    registrar: grpc.Server
    workers: tuple[ThreadPoolExecutor, ...]
    health: HealthStreams
    watch: _Watch
    dra_file: SocketFile | None = None
    registrar_file: SocketFile | None = None
    missed: bool = False

    @classmethod
    def prepare(
        cls, paths: SocketPaths, preparer: Preparer, devices: Devices, watch: _Watch, resend_seconds: float
    ) -> "_Running":
        calls = ThreadPoolExecutor(CALL_WORKERS, thread_name_prefix="dra")
        # Two, so that the kubelet's 1 s for GetInfo is not spent waiting for our own probe.
        registrations = ThreadPoolExecutor(2, thread_name_prefix="registration")
        health = HealthStreams(devices, opened=watch.opened, closed=watch.closed, resend_seconds=resend_seconds)
        # No limit on a connection's age or idleness: the kubelet would take its end for the plugin's.
        dra = grpc.server(calls, handlers=[*dra_handlers(preparer), *health.handlers()])
        registrar = grpc.server(registrations, handlers=[registration_handlers(paths, watch.notified)])
        return cls(dra, registrar, (calls, registrations), health, watch)

    def listen(self, paths: SocketPaths) -> None:
        """DRA first: the kubelet calls it as soon as the registrar has told it where."""
        self.dra_file = socketfiles.listen(self.dra, paths.dra, paths.driver)
        self.dra.start()
        self.registrar_file = socketfiles.listen(self.registrar, paths.registration, paths.driver)
        self.registrar.start()

    def in_place(self) -> bool:
        return all(file is not None and file.in_place() for file in (self.registrar_file, self.dra_file))

    def miss(self) -> None:
        """A socket is not in its place: said once, because it does not come back by itself."""
        if not self.missed:
            self.missed = True
            files = [file for file in (self.registrar_file, self.dra_file) if file is not None and not file.in_place()]
            _log.warning("sockets went missing", paths=[str(file.path) for file in files])
        self.watch.see(registered.SocketsMissing())

    def stop(self, grace_seconds: float) -> None:
        # The kubelet deregisters us when this file goes: no new calls, and the other instance of an update gets them.
        if self.registrar_file is not None:
            self.registrar_file.remove()
        registrar_over = self.registrar.stop(0).wait(_SETTLE_SECONDS)
        self.health.end()
        over = self.dra.stop(grace_seconds)
        dra_over = over.wait(grace_seconds + _SETTLE_SECONDS)
        if self.dra_file is not None:
            self.dra_file.remove()
        # Workers of a server that is not over must stay: a call that finds none kills gRPC's serving thread.
        if dra_over and registrar_over:
            self.health.release_workers()
            for workers in self.workers:
                workers.shutdown(wait=False)
