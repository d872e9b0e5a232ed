"""The kubelet of one node: it attends to the plugins and to the pods, each in threads of its own.

What it decides is in the modules beside it; this one starts, stops and connects them.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog

from api.kube.client import Client
from api.kube.errors import Closed, NotFound, Unreachable
from api.kube.events import EventRecorder
from api.kube.paths import NODES, PODS
from api.kube.reflector import Change, Reflector
from api.timestamps import time_text, utc_now
from cli.sandbox.kubelet.attendance import Attendance
from cli.sandbox.kubelet.containers import ContainerView
from cli.sandbox.kubelet.health import DeviceHealth
from cli.sandbox.kubelet.ledger import Ledger
from cli.sandbox.kubelet.node import node_object, ready_status
from cli.sandbox.kubelet.plugin import Plugin
from cli.sandbox.kubelet.pods import NotPrepared, Object
from cli.sandbox.kubelet.preparation import Preparation
from cli.sandbox.kubelet.registry import Registry
from cli.sandbox.kubelet.wipes import SliceWiper
from cli.sandbox.kubelet.worker import PodWorker, Surroundings

_log = structlog.get_logger(__name__)

SYNC_SECONDS = 10.0
RETRY_SECONDS = 10.0
"""After a failure a pod waits this long (pkg/kubelet, backOffPeriod)."""
RECONCILE_SECONDS = 60.0
"""How often it is looked for claims of pods that are gone (dra/manager.go, defaultReconcilePeriod)."""


class Kubelet:
    """Between `start` and `stop` it does for the pods of its node what a kubelet does. Not to be started twice."""

    def __init__(
        self,
        client: Client,
        node: str,
        *,
        registry_dir: Path,
        cdi_dirs: Iterable[Path],
        checkpoint: Path | None = None,
        dra_versions: tuple[str, ...] = ("v1", "v1beta1"),
        health_versions: tuple[str, ...] = ("v1", "v1alpha1"),
        retry_seconds: float = RETRY_SECONDS,
        reconcile_seconds: float = RECONCILE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """`checkpoint` is the file that remembers claims across restarts. `clock`, in seconds, is that of wipes and of stale
        health. Raises OSError or ValueError for a checkpoint that cannot be read."""
        self._client = client.sibling(pool_size=8)
        self._node = node
        self._now = now
        self._reconcile_seconds = reconcile_seconds
        self._events = EventRecorder(client, "kubelet", node, now=now)
        self._health = DeviceHealth(clock)
        self._ledger = Ledger(checkpoint)
        self._wiper = SliceWiper(self._client, node)
        self.registry = Registry(
            registry_dir, dra_versions=dra_versions, health_versions=health_versions, heard=self._hear
        )
        """Its plugins. To be looked at only, while the kubelet runs."""
        self._attendance = Attendance(self.registry, self._wiper.wipe, clock=clock)
        preparation = Preparation(self._client, self._ledger, self._plugin_of)
        self._around = Surroundings(
            client=self._client,
            events=self._events,
            ledger=self._ledger,
            health=self._health,
            preparation=preparation,
            cdi_dirs=tuple(cdi_dirs),
            retry_seconds=retry_seconds,
            now=now,
        )
        self._pods = Reflector(
            client,
            PODS.path(),
            handler=self,
            transform=lambda pod: pod,
            query={"fieldSelector": f"spec.nodeName={node}"},
        )
        self._lock = threading.Lock()
        self._workers: dict[str, PodWorker] = {}
        self._stopping = threading.Event()
        self._reconciling = threading.Thread(target=self._reconcile, name="kubelet-reconcile", daemon=True)

    def start(self) -> None:
        """Make the Node ready, delete its slices, and begin. KubeError when the API server does not take the Node, Unreachable
        when it does not list the pods in time."""
        self._make_ready()
        self._events.start()
        self._wiper.wipe()
        self._attendance.start()
        self._pods.start()
        if not self._pods.wait_synced(SYNC_SECONDS):
            why = self._pods.state.last_error or f"no answer within {SYNC_SECONDS:.0f} s"
            self.stop()
            raise Unreachable(self._client.server.url, f"the pods of {self._node} could not be listed: {why}")
        self._reconciling.start()

    def stop(self) -> None:
        """End all threads and connections; pods, claims and Node stay as they are."""
        self._stopping.set()
        self._pods.stop()
        with self._lock:
            workers = list(self._workers.values())
        for worker in workers:
            worker.stop()
        self._attendance.stop()
        self._client.close()
        for worker in workers:
            worker.join()
        self._wiper.stop()
        if self._reconciling.ident is not None:
            self._reconciling.join(5.0)
        self._events.stop()

    # For whoever wants to know.

    def views(self, namespace: str, pod: str) -> Mapping[str, ContainerView]:
        """What the containers of a running pod see, by their names; empty for one that does not run here."""
        with self._lock:
            workers = list(self._workers.values())
        for worker in reversed(workers):
            if (worker.namespace, worker.name) == (namespace, pod) and worker.views:
                return worker.views
        return {}

    def cdi_names(self, namespace: str, pod: str, container: str) -> tuple[str, ...]:
        """The CDI devices that the runtime was given for a container; none for one that does not run here."""
        found = self.views(namespace, pod).get(container)
        return found.cdi_names if found else ()

    def prepared(self) -> dict[tuple[str, str], frozenset[str]]:
        """The claims that are prepared now, as (namespace, name), and the UIDs of the pods that use them."""
        with self._ledger.locked() as entries:
            return {key: frozenset(entry.pods) for key, entry in entries.items() if entry.prepared}

    # The handler of the reflector.

    def on_change(self, change: Change, old: Object | None, new: Object | None) -> None:  # noqa: ARG002  # the protocol's
        """A pod of this node came, changed or went."""
        if old is not None and (new is None or new["metadata"]["uid"] != old["metadata"]["uid"]):
            with self._lock:
                before = self._workers.get(old["metadata"]["uid"])
            if before is not None:
                before.tell(None)
        if new is None:
            return
        uid = new["metadata"]["uid"]
        with self._lock:
            known = self._workers.get(uid)
            if known is None and not self._stopping.is_set():
                worker = self._workers[uid] = PodWorker(new, self._around, self._forget)
                worker.start()
        if known is not None:
            known.tell(new)

    def on_synced(self) -> None:
        """All pods are known; what is left of others is looked for by the reconciling thread."""

    # How.

    def _forget(self, worker: PodWorker) -> None:
        with self._lock:
            self._workers.pop(worker.uid, None)

    def _plugin_of(self, driver: str) -> Plugin:
        try:
            return self.registry.plugin(driver)
        except IndexError:
            raise NotPrepared(f"DRA driver {driver} is not registered") from None

    def _hear(self, plugin: Plugin, report: Any) -> None:
        if report is None:
            self._health.clear(plugin.driver)
        elif self._health.take(plugin.driver, report):
            users = self._ledger.users_of(plugin.driver)
            with self._lock:
                affected = [worker for uid, worker in self._workers.items() if uid in users]
            for worker in affected:
                worker.wake()

    def _reconcile(self) -> None:
        while not self._stopping.is_set():
            with self._lock:
                active = set(self._workers)
            for uid in self._ledger.pods() - active:
                try:
                    self._around.preparation.unprepare(uid)
                except NotPrepared as why:
                    _log.warning("claims of a pod that is gone could not be unprepared", uid=uid, why=str(why))
                except Closed:
                    return
            self._stopping.wait(self._reconcile_seconds)

    def _make_ready(self) -> None:
        now = time_text(self._now())
        try:
            there = self._client.get(NODES.path(name=self._node))
        except NotFound:
            self._client.create(NODES.path(), node_object(self._node, now))
            return
        status = ready_status(self._node, now, there.get("status") or {})
        self._client.merge_patch(NODES.path(name=self._node, subresource="status"), {"status": status})
