"""The node plugin put together: which part tells which, what starts first, and what ends last.

Deciding is elsewhere; here are only the wires, and the three loops that keep looking: at the kubelet's sockets, at what the
plugin keeps on disk, and at what the API knows of that. The last waits for an API server, so that nothing may wait for it.
"""

import threading
import time
from collections.abc import Callable, Iterator
from uuid import NAMESPACE_DNS, uuid5

import structlog

from api.claims import Claim, PodRef, read_claim
from api.hardware import LeftOut, Machine
from api.kube.backoff import Backoff
from api.kube.client import Client
from api.kube.errors import KubeError, NotFound
from api.kube.events import EventRecorder, Regarding
from api.kube.paths import CLAIMS, PODS
from api.names import ClaimRef, gpu_device_name, pool_name
from api.refusals import BadInput, Reason, Refused
from api.timestamps import utc_now
from kubeletplugin.cdi.builtin import Places
from kubeletplugin.cdi.content import Content, choose
from kubeletplugin.cdi.files import CdiFiles
from kubeletplugin.cdi.roots import Root
from kubeletplugin.cdi.simulated import SimulatedContent
from kubeletplugin.claims.injection import ClaimInjection
from kubeletplugin.claims.prepare import Claims
from kubeletplugin.claims.states import Event
from kubeletplugin.discovery import uevents
from kubeletplugin.discovery.nvml import NvmlFailed, NvmlSource
from kubeletplugin.discovery.rediscovery import Discovery
from kubeletplugin.discovery.source import Source
from kubeletplugin.discovery.sysfs import boot_id
from kubeletplugin.disk import LocalDisk
from kubeletplugin.health.book import HealthBook
from kubeletplugin.health.nvml import NvmlProbe
from kubeletplugin.health.turns import Turns
from kubeletplugin.health.watch import AttendedSource, HealthWatch, Probe
from kubeletplugin.report import Reporter
from kubeletplugin.seen import Seen
from kubeletplugin.settings import Settings
from kubeletplugin.sockets.health import DeviceHealth
from kubeletplugin.sockets.paths import socket_paths
from kubeletplugin.sockets.server import KubeletSockets

SOCKET_CHECK_SECONDS = 5.0
"""How often to see that the socket files still lead to us: nobody tells when they are removed."""

CLAIMS_SECONDS = 5.0
"""How long a stop waits for each look at the claims. It may be cut off anywhere: what it leaves, the next start mends."""

LOOKS_MISSED = 3
"""Looks at a GPU's health that may be missed before it counts as unknown."""
PATIENCE_SECONDS = 5.0
"""What a look may take."""

MISMATCH_SECONDS = 60.0
"""How long a state that only a restart mends must last where no hardware was found yet: a new process may find the same, and
restarts must not follow each other faster than a look at the hardware."""

_log = structlog.get_logger(__name__)


class Plugin:
    """One instance of the node plugin. `start`, `stop` and the construction belong to one thread."""

    def __init__(
        self,
        settings: Settings,
        client: Client,
        *,
        version: str,
        ended: threading.Event | None = None,
        done: Callable[[Event, str | None, float], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises Refused for settings that cannot work on this node. Nothing is touched yet but read.

        `ended` is set when the plugin should be stopped and its process end, to be started anew; see `restart_wanted`. `done`
        hears of the kubelet's calls as they end (see `Claims`).
        """
        self.restart_wanted: str | None = None
        """Why the process should end with an error; None while nothing asks for it."""
        self._ended = ended or threading.Event()
        self._clock = clock
        self._trouble_since = 0.0
        self._settings = settings
        self._client = client
        self._paths = socket_paths(
            settings.driver, settings.registry_dir, settings.plugin_dir, pod_uid=settings.pod_uid
        )
        self._pool = pool_name(settings.node, settings.driver)
        instance = settings.pod_uid or str(uuid5(NAMESPACE_DNS, settings.node))
        self._events = EventRecorder(client, f"{settings.driver}/kubeletplugin", settings.node)
        self._reporter = Reporter(
            client,
            node=settings.node,
            namespace=settings.namespace,
            instance=instance,
            version=version,
            clock=time.monotonic,
            wall=utc_now,
            backoff=Backoff(),
        )
        disk, content = LocalDisk(), _content(settings)
        self._health = HealthBook(
            settings.plugin_dir, disk, fresh_seconds=LOOKS_MISSED * settings.health_seconds + PATIENCE_SECONDS
        )
        source, probe = _source(settings, self._health)
        turns = Turns()
        self._discovery = Discovery(
            AttendedSource(source, self._health, turns),
            self._found,
            on_trouble=self._not_found,
            period_seconds=settings.rediscover_seconds,
        )
        self._watch = HealthWatch(
            probe,
            self._health,
            turns,
            state_dir=settings.plugin_dir,
            changed=self._discovery.poke,
            looked=self._devices_changed,
            period_seconds=settings.health_seconds,
        )
        files = CdiFiles(settings.cdi_dir, settings.driver, disk)
        files.ensure_directory()
        self._claims = Claims(
            driver=settings.driver,
            node=settings.node,
            state_dir=settings.plugin_dir,
            disk=disk,
            cdi=ClaimInjection(settings.driver, files, lambda: content),
            machine=lambda: self._discovery.current,
            why_no_machine=self._why_no_machine,
            fetch=self._fetch,
            tell=self._tell,
            done=done or (lambda *_: None),
            told_before=self._health.was_known,
        )
        self._sockets = KubeletSockets(self._paths, self._claims, self._devices, changed=self._registration_changed)
        self._listener: uevents.Listener | None = None
        self._news = threading.Condition()
        self._changed = False
        self._restore_now = threading.Event()
        self._stopping = threading.Event()
        self._socket_keeper = threading.Thread(target=self._keep_sockets, name="keep-sockets", daemon=True)
        self._claim_keepers = (
            threading.Thread(target=self._keep_claims, name="keep-claims", daemon=True),
            threading.Thread(target=self._compare_claims, name="compare-claims", daemon=True),
        )

    def start(self) -> None:
        """Serve. Refused when a socket or directory cannot be used; then nothing is left running."""
        # Holds and records agree before anybody asks; then the sockets, before all that may have to be waited for: claims
        # of pods that end must be released though there is no driver and no API server.
        _log.info("claims found", summary=self._claims.restore().sentence)
        self._sockets.start()
        self._events.start()
        self._reporter.start()
        self._discovery.start()
        self._watch.start()
        self._listener = self._listen()
        self._socket_keeper.start()
        for keeper in self._claim_keepers:
            keeper.start()

    def stop(self) -> None:
        """End in order; claims stay as they are, sockets and this instance's own marks go."""
        self._stopping.set()
        self._restore_now.set()
        with self._news:
            self._news.notify()
        # Its keeper first: it could open them again.
        self._socket_keeper.join()
        self._sockets.stop()
        # Then what others see of us, because a driver that hangs, or an API server that is away, may keep the rest from ending.
        self._reporter.stop()
        if self._listener is not None:
            self._listener.stop()
        for keeper in self._claim_keepers:
            keeper.join(CLAIMS_SECONDS)
        self._events.stop()
        self._watch.stop()
        self._discovery.stop()

    def why_not_live(self) -> str | None:
        """What is broken and only a restart mends; None when nothing is."""
        if not self._sockets.sockets_in_place():
            return "the kubelet's way to our sockets is cut"
        return self._why_restart()

    def why_not_ready(self) -> str | None:
        """What keeps new pods from getting GPUs here; None when nothing does."""
        if self._discovery.current is None:
            return self._why_no_machine()
        if not self._sockets.registered():
            return "the kubelet has not registered the plugin"
        return self._reporter.last_error

    def seen(self) -> Seen:
        """How it is now, for metrics; reads what is kept on disk."""
        return Seen(
            machine=self._discovery.current,
            records=self._claims.records(),
            registered=self._sockets.registered(),
            why_not_ready=self.why_not_ready(),
            report_age_seconds=self._reporter.age_seconds,
            events_lost=self._events.lost,
        )

    def _why_no_machine(self) -> str:
        why = self._discovery.why
        return why.what if why is not None else "the hardware has not been looked at yet"

    def _why_restart(self) -> str | None:
        """Why another process would find the hardware and this one cannot: at once where it has found some before, for then
        the driver was changed under it; otherwise only when it lasts, so that restarts are not a loop."""
        why = self._discovery.why
        if not (isinstance(why, NvmlFailed) and why.restart_helps):
            return None
        lasts = self._clock() - self._trouble_since >= MISMATCH_SECONDS
        return why.what if lasts or self._discovery.current is not None else None

    def _found(self, machine: Machine) -> None:
        self._reporter.found(machine)
        self._sockets.devices_changed()
        self._watch.poke()
        self._restore_now.set()

    def _devices_changed(self) -> None:
        self._sockets.devices_changed()

    def _not_found(self, reason: Reason | None) -> None:
        """While no hardware was ever found, the inventory says why. Later, what was found stays: pods use it."""
        self._trouble_since = self._clock()
        if reason is not None and self._discovery.current is None:
            why = LeftOut("driver", f"{reason.what}; {reason.remedy}")
            self._reporter.found(Machine(boot_id=boot_id(self._settings.proc_root), left_out=(why,)))

    def _devices(self) -> Iterator[DeviceHealth]:
        machine = self._discovery.current
        for gpu in machine.gpus if machine else ():
            verdict = self._health.verdict(gpu.uuid)
            yield DeviceHealth(self._pool, gpu_device_name(gpu.place.address), verdict.healthy, verdict.message)

    def _fetch(self, ref: ClaimRef) -> Claim | None:
        """The claim as it is now; None when there is none. Refused when the API server does not say, or cannot be asked."""
        if not (ref.namespace and ref.name):  # such a path would be that of a collection
            remedy = "look at who called the plugin; the kubelet gives both"
            raise Refused(BadInput(f"claim UID {ref.uid[:64]!r}", "came without a namespace or a name", remedy))
        try:
            return read_claim(self._client.get(CLAIMS.path(ref.namespace, ref.name)))
        except NotFound:
            return None
        except KubeError as error:
            raise Refused(error) from error

    def _tell(self, ref: ClaimRef, reason: Reason, event: Event, pods: tuple[PodRef, ...] = ()) -> None:
        for about in (
            Regarding(CLAIMS.api_version, CLAIMS.kind, ref.name, ref.namespace, ref.uid),
            *(Regarding(PODS.api_version, PODS.kind, pod.name, ref.namespace, pod.uid) for pod in pods),
        ):
            self._events.warning(
                about,
                reason=type(reason).__name__,
                note=f"{reason.what}; {reason.remedy}",
                action=event.value.capitalize(),
            )

    def _listen(self) -> uevents.Listener | None:
        if self._settings.machine is not None:
            return None  # a file has no uevents
        events = uevents.open_socket()
        if events is None:
            return None
        listener = uevents.Listener(events, self._discovery.poke)
        listener.start()
        return listener

    def _registration_changed(self) -> None:
        with self._news:
            self._changed = True
            self._news.notify()

    def _keep_sockets(self) -> None:
        while not self._stopping.is_set():
            wait = self._look_at_sockets()
            with self._news:
                self._news.wait_for(lambda: self._changed or self._stopping.is_set(), timeout=wait)
                self._changed = False

    def _look_at_sockets(self) -> float:
        """Report whether the kubelet holds on to us, and mend what is gone; the seconds until the next look."""
        self._look_for_an_end()
        try:
            self._reporter.registered(self._sockets.registered())
            if not self._sockets.sockets_in_place():
                self._open_again()
            next_change = self._sockets.next_change()
        except Exception:  # noqa: BLE001  # logged; the thread must go on: nobody else would open the sockets again
            _log.exception("sockets not looked at")
            return SOCKET_CHECK_SECONDS
        return SOCKET_CHECK_SECONDS if next_change is None else min(SOCKET_CHECK_SECONDS, next_change)

    def _look_for_an_end(self) -> None:
        """Ask whoever runs us for a new process where only that helps: an exec probe sees our sockets and no driver."""
        why = self._why_restart()
        if why is not None and self.restart_wanted is None:
            self.restart_wanted = why
            _log.error(
                "restart wanted", why=why, remedy="nothing need be done: claims stay, the kubelet starts us anew"
            )
            self._ended.set()

    def _open_again(self) -> None:
        """Somebody removed our socket files, and the kubelet has forgotten us by that."""
        _log.warning("sockets removed by somebody else", remedy="they are opened again")
        self._sockets.stop()
        try:
            self._sockets.start()
        except Refused as refused:
            _log.warning("sockets not opened", why=refused.reason.what, remedy=refused.reason.remedy)

    def _keep_claims(self) -> None:
        """Whenever the hardware changed (CDI files name it), and every now and then; at start it was done already."""
        while True:
            self._restore_now.wait(self._settings.reconcile_seconds)
            self._restore_now.clear()
            if self._stopping.is_set():
                return
            try:
                self._claims.restore()
            except Refused as refused:
                _log.warning("claims not restored", why=refused.reason.what, remedy=refused.reason.remedy)
            except Exception:  # noqa: BLE001  # logged; the thread must go on: the next pass may find the disk well again
                _log.exception("claims not restored")

    def _compare_claims(self) -> None:
        """Every now and then; how often the API is asked is for `Claims.compare` to say."""
        while True:
            try:
                self._claims.compare()
            except Exception:  # noqa: BLE001  # logged; the thread must go on, as above
                _log.exception("claims not compared")
            if self._stopping.wait(self._settings.reconcile_seconds):
                return


def _source(settings: Settings, book: HealthBook) -> tuple[Source, Probe]:
    """What there is, and how it is."""
    if settings.machine is not None:
        # A node does not pay for reading machine files.
        from kubeletplugin.discovery.simulated import SimulatedSource
        from kubeletplugin.health.simulated import SimulatedProbe

        source = SimulatedSource(settings.machine, settings.machine_root, settings.node, nodes=settings.machine_nodes)
        return source, SimulatedProbe(settings.machine, settings.node)
    real = NvmlSource(settings.driver_root, settings.sysfs_root, settings.proc_root, found_before=book.has_found)
    return real, NvmlProbe(real, settings.sysfs_root, watch_xids=settings.watch_xids, clock=time.monotonic)


def _content(settings: Settings) -> Content:
    driver = Root(settings.driver_root, settings.host_driver_root)
    if settings.machine is not None:
        made_up = driver if settings.driver_root.parts[1:] else None
        return SimulatedContent(Root(settings.machine_root, settings.host_machine_root), made_up)
    host = Root(settings.dev_root, settings.host_dev_root)
    places = Places(driver=driver, dev=host, sys=settings.sysfs_root, host=host)
    return choose(settings.cdi_mode, places)
