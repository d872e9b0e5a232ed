"""The life of one pod on the node: its claims are prepared, its containers run, and in the end all is given back.

As in pkg/kubelet/pod_workers.go each pod has a thread of its own, so that one that waits for its driver keeps no other.
"""

import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog

from api.kube.client import Client
from api.kube.errors import Closed, Conflict, Invalid, KubeError, NotFound
from api.kube.events import EventRecorder, Regarding
from api.kube.paths import PODS
from api.timestamps import time_text
from cli.sandbox.kubelet.containers import ContainerView, NotResolved, view
from cli.sandbox.kubelet.health import DeviceHealth, allocated_resources
from cli.sandbox.kubelet.ledger import Ledger
from cli.sandbox.kubelet.pods import NotPrepared, Object, is_over, running, uses_of
from cli.sandbox.kubelet.preparation import Preparation

_log = structlog.get_logger(__name__)

RESYNC_SECONDS = 60.0
"""Each pod is looked at this often even when nothing happened (kubelet --sync-frequency)."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the workers of a node share."""

    client: Client
    events: EventRecorder
    ledger: Ledger
    health: DeviceHealth
    preparation: Preparation
    cdi_dirs: tuple[Path, ...]
    retry_seconds: float
    """How long a pod waits after something went wrong, and up to half as much again."""
    now: Callable[[], datetime]


class PodWorker:
    """One pod; a pod of the same name that comes later has another. `ended` is called by its thread as the last thing."""

    def __init__(self, pod: Object, around: Surroundings, ended: Callable[["PodWorker"], object]) -> None:
        self.uid: str = pod["metadata"]["uid"]
        self.namespace: str = pod["metadata"]["namespace"]
        self.name: str = pod["metadata"]["name"]
        self._around = around
        self._ended = ended
        self._pod = pod
        self._gone = False
        self._due = True
        self._stopping = False
        self._changed = threading.Condition()
        self._views: Mapping[str, ContainerView] | None = None
        self._log = _log.bind(pod=f"{self.namespace}/{self.name}", uid=self.uid)
        self._thread = threading.Thread(target=self._run, name=f"kubelet-pod {self.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def tell(self, pod: Object | None) -> None:
        """The pod is like this now; None when it is gone from the API server."""
        with self._changed:
            if pod is None:
                self._gone = True
            else:
                self._pod = pod
            self._due = True
            self._changed.notify()

    def wake(self) -> None:
        """Look again."""
        with self._changed:
            self._due = True
            self._changed.notify()

    def stop(self) -> None:
        """End where it stands, as when the kubelet stops; `join` waits for it."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def join(self, seconds: float = 5.0) -> None:
        """Wait for its thread."""
        self._thread.join(seconds)

    @property
    def views(self) -> Mapping[str, ContainerView]:
        """What its containers see, by their names; empty while they do not run."""
        return self._views or {}

    def _run(self) -> None:
        pause = 0.0
        while self._wait(pause):
            with self._changed:
                pod, gone = self._pod, self._gone
                self._due = False
            try:
                if self._sync(pod, gone=gone):
                    break
                pause = RESYNC_SECONDS
            except Closed:
                break
            except (NotPrepared, NotResolved, KubeError) as error:
                self._log.warning("pod could not be synced", why=str(error))
                pause = self._retry()
            except Exception:  # noqa: BLE001  # the edge of a sync: a thread that dies would leave the pod as it is for ever
                self._log.exception("pod could not be synced")
                pause = self._retry()
        self._ended(self)

    def _retry(self) -> float:
        return self._around.retry_seconds * (1 + random.random() / 2)  # noqa: S311  # spreads retries, no secret

    def _wait(self, pause: float) -> bool:
        """Until there is something to do; False when it is to stop. A change does not cut the pause after a failure short,
        but for the end of the pod (pod_workers.go keeps to its backoff, and gives termination precedence)."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or (self._due and self._may_hurry(pause)), pause)
            return not self._stopping

    def _may_hurry(self, pause: float) -> bool:
        return pause == RESYNC_SECONDS or self._is_ending(self._pod, gone=self._gone)

    @staticmethod
    def _is_ending(pod: Object, *, gone: bool) -> bool:
        return gone or "deletionTimestamp" in pod["metadata"] or is_over(pod)

    def _sync(self, pod: Object, *, gone: bool) -> bool:
        """Bring the pod on; whether that was the last of it."""
        if self._is_ending(pod, gone=gone):
            return self._end(pod, gone=gone)
        if self._views is None:
            self._views = self._begin(pod)
        self._report(pod)
        return False

    def _begin(self, pod: Object) -> dict[str, ContainerView]:
        """Have the claims prepared, then make the containers."""
        try:
            self._around.preparation.prepare(pod)
        except NotPrepared as why:
            # The words of kuberuntime_manager.go around those of dra/manager.go.
            note = f"Failed to prepare dynamic resources: prepare dynamic resources: {why}"
            self._tell_people("FailedPrepareDynamicResources", note, "Preparing")
            raise
        try:
            views = {each["name"]: self._view(each, pod) for each in _containers(pod)}
        except NotResolved as why:
            self._tell_people("Failed", f"Error: {why}", "Creating")
            raise
        self._log.info("pod started", containers=len(views))
        return views

    def _view(self, container: Object, pod: Object) -> ContainerView:
        names = [
            name
            for use in uses_of(pod, container)
            for name in self._around.preparation.cdi_names((self.namespace, use.claim), use.request)
        ]
        return view(container["name"], names, self._around.cdi_dirs)

    def _report(self, pod: Object) -> None:
        health = {
            each["name"]: allocated_resources(pod, each, self._around.ledger, self._around.health)
            for each in pod["spec"]["containers"]
        }
        status = running(pod, health, time_text(self._around.now()))
        before = pod.get("status") or {}
        if any(before.get(field) != value for field, value in status.items()):
            # The uid makes the API server refuse what is meant for a pod that has been replaced.
            self._patch_status({"metadata": {"uid": self.uid}, "status": status})

    def _patch_status(self, patch: dict[str, Any]) -> None:
        try:
            self._around.client.merge_patch(PODS.path(self.namespace, self.name, "status"), patch)
        except NotFound:
            return  # the watch will tell
        except (Conflict, Invalid) as refused:
            self._log.info("pod replaced", why=refused.what)

    def _end(self, pod: Object, *, gone: bool) -> bool:
        """Stop the containers, give back the claims, and only then let the pod go."""
        if self._views is not None:
            self._views = None
            self._log.info("pod stopped")
        self._around.preparation.unprepare(self.uid)
        if gone:
            return True
        if "deletionTimestamp" in pod["metadata"]:
            try:
                self._around.client.delete(PODS.path(self.namespace, self.name), uid=self.uid, grace_seconds=0)
            except (NotFound, Conflict):
                return True
        return False

    def _tell_people(self, reason: str, note: str, action: str) -> None:
        regarding = Regarding("v1", "Pod", self.name, self.namespace, self.uid)
        self._around.events.warning(regarding, reason=reason, note=note, action=action)


def _containers(pod: Object) -> list[Object]:
    return [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
