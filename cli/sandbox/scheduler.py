"""A stand-in for kube-scheduler: each pending pod gets a node, and its claims the devices that upstream would choose.

    scheduler = Scheduler(client)  # of api.kube; the scheduler makes siblings of it and closes those
    scheduler.start()              # returns when the first lists are in; raises KubeError where that fails
    scheduler.stop()               # may be repeated

Pods with `resourceClaims`, pods with extended resources that a DeviceClass offers, and pods without devices are placed;
the claims of templates are made by somebody else, as is the end of reservations (the claim controller). A pod that has to
wait gets PodScheduled=False with the reason, and an Event FailedScheduling when that reason is new; it is tried again when
a pod, claim, class, slice or node changes. What is decided is in `placement`, nothing is decided here. Every pass reads
from the API server what it decides on, so that it never acts on an old copy; the watches only say when.
"""

import threading
from collections.abc import Callable
from datetime import datetime

import structlog

from api.kube import watch
from api.kube.backoff import Backoff
from api.kube.client import Client
from api.kube.errors import AlreadyExists, ApiError, Closed, Conflict, KubeError, NotFound, Unreachable
from api.kube.events import EventRecorder, Regarding
from api.kube.paths import CLAIMS, NODES, PODS, SLICES, Resource
from api.kube.reflector import Change, Reflector
from api.timestamps import time_text, utc_now
from cli.sandbox.placement import Placed, Stale, Waits, World, place, waiting
from controller.allocator.cel import Compiler
from controller.allocator.question import Object, reference

_log = structlog.get_logger(__name__)

CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass")
FINALIZER = "resource.kubernetes.io/delete-protection"
SYNC_SECONDS = 10.0


class Scheduler:
    """Places pods in a thread of its own, between `start` and `stop`."""

    def __init__(self, client: Client, *, now: Callable[[], datetime] = utc_now) -> None:
        """`now` is the clock of timestamps."""
        self._client = client.sibling()
        self._now = now
        self._recorder = EventRecorder(client, "lanewise.dev/sandbox-scheduler", "sandbox", now=now)
        self._reflectors = tuple(
            Reflector(client, resource.path(), handler=_Wakes(self._wake), transform=_version_of)
            for resource in (PODS, CLAIMS, CLASSES, SLICES, NODES)
        )
        self._compiler = Compiler()
        self._backoff = Backoff()
        self._changed = threading.Condition()
        self._due = True
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        """Begin to place pods. Returns when the first lists are in; KubeError, and nothing runs, where they do not come."""
        try:
            # What is the matter with the API server is said by a call of our own; the reflectors go on trying.
            self._client.list_pages(PODS.path())
            self._recorder.start()
            for reflector in self._reflectors:
                reflector.start()
            for reflector in self._reflectors:
                if not reflector.wait_synced(SYNC_SECONDS):
                    problem = reflector.state.last_error or "a list did not come in time"
                    raise Unreachable(self._client.server.url, problem)
        except KubeError:
            self.stop()
            raise
        self._thread.start()

    def stop(self) -> None:
        """End all threads."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for reflector in self._reflectors:
            reflector.stop()
        self._client.close()
        if self._thread.ident is not None:
            self._thread.join(5.0)
        self._recorder.stop()

    def _wake(self) -> None:
        with self._changed:
            self._due = True
            self._changed.notify_all()

    def _run(self) -> None:
        delay = 0.0
        while self._wait(delay):
            delay = 0.0
            try:
                self._pass()
            except Closed:
                return
            except KubeError as error:
                delay = self._backoff.delay_seconds()
                _log.warning("scheduling interrupted", why=error.what, remedy=error.remedy)
            except Exception:  # noqa: BLE001  # the edge of a pass: a thread that dies leaves every pod pending
                delay = self._backoff.delay_seconds()
                _log.exception("scheduling failed")

    def _wait(self, delay: float) -> bool:
        """Until something changes, or after a failure for `delay` seconds; False when it is time to stop."""
        with self._changed:
            if delay:
                self._changed.wait_for(lambda: self._stopping, delay)
            else:
                self._changed.wait_for(lambda: self._stopping or self._due)
            self._due = False
            return not self._stopping

    def _pass(self) -> None:
        """Try each pending pod once, in order, each with what the ones before it took."""
        world = self._world()
        for pod in waiting(world.pods):
            decision = place(pod, world, self._compiler)
            try:
                match decision:
                    case Placed():
                        world = self._carry_out(pod, decision, world)
                    case Stale(claim):
                        self._delete(claim)
                    case Waits():
                        self._tell(pod, decision)
            except (Conflict, NotFound, AlreadyExists) as error:
                # Somebody wrote in between; what they wrote is decided upon in another pass.
                _log.info("pod is tried again", pod=reference(pod), why=error.what)
                self._wake()
                return
            except ApiError as error:
                # About this pod alone, and it would be said again for as long as nothing changes.
                _log.warning("pod could not be placed", pod=reference(pod), why=error.what)
                self._tell(pod, Waits(error.what, "SchedulerError"))

    def _world(self) -> World:
        # Pods first: what one of them names was made before it, mostly, and must not seem to be missing.
        listed: dict[str, tuple[watch.Object, ...]] = {
            resource.plural: self._client.list_pages(resource.path()).items
            for resource in (PODS, CLAIMS, CLASSES, SLICES, NODES)
        }
        return World(
            nodes=listed[NODES.plural],
            pods=listed[PODS.plural],
            claims={reference(claim): claim for claim in listed[CLAIMS.plural]},
            classes={item["metadata"]["name"]: item for item in listed[CLASSES.plural]},
            slices=listed[SLICES.plural],
        )

    def _carry_out(self, pod: Object, placed: Placed, world: World) -> World:
        """Write allocations and reservations, then bind the pod; the world after that."""
        meta = pod["metadata"]
        claims = [self._settle(claim, placed.allocations.get(reference(claim)), pod) for claim in placed.claims]
        if placed.special is not None:
            made = self._client.create(CLAIMS.path(meta["namespace"]), dict(placed.special.claim))
            claims.append(self._settle(made, placed.special_allocation, pod))
            mappings = [dict(mapping) for mapping in placed.special.mappings]
            told = {"resourceClaimName": made["metadata"]["name"], "requestMappings": mappings}
            status = {"status": {"extendedResourceClaimStatus": told}}
            self._client.merge_patch(PODS.path(meta["namespace"], meta["name"], "status"), status)
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": placed.node},
        }
        self._client.create(PODS.path(meta["namespace"], meta["name"], "binding"), binding)
        devices = [device for claim in claims for device in _devices(claim)]
        _log.info("pod placed", pod=reference(pod), node=placed.node, devices=devices)
        bound = {**pod, "spec": {**pod["spec"], "nodeName": placed.node}}
        return World(
            nodes=world.nodes,
            pods=tuple(bound if other is pod else other for other in world.pods),
            claims={**world.claims, **{reference(claim): claim for claim in claims}},
            classes=world.classes,
            slices=world.slices,
        )

    def _settle(self, claim: Object, allocation: Object | None, pod: Object) -> Object:
        """Write the allocation, if there is one to write, and enter the pod as a user: first the finalizer, as
        kube-scheduler does (dynamicresources.go, bindClaim), so that the claim cannot go while devices are allocated."""
        meta = claim["metadata"]
        path = (meta["namespace"], meta["name"])
        if allocation is not None and FINALIZER not in (meta.get("finalizers") or ()):
            finalizers = [*(meta.get("finalizers") or ()), FINALIZER]
            claim = self._client.replace(CLAIMS.path(*path), {**claim, "metadata": {**meta, "finalizers": finalizers}})
        status = dict(claim.get("status") or {})
        if allocation is not None:
            status["allocation"] = {**allocation, "allocationTimestamp": time_text(self._now())}
        users = list(status.get("reservedFor") or ())
        uid = pod["metadata"]["uid"]
        if allocation is None and any(user.get("uid") == uid for user in users):
            return claim
        user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": uid}
        status["reservedFor"] = [*(other for other in users if other.get("uid") != uid), user]
        return self._client.replace(CLAIMS.path(*path, "status"), {**claim, "status": status})

    def _delete(self, claim: Object) -> None:
        meta = claim["metadata"]
        finalizers = [each for each in meta.get("finalizers") or () if each != FINALIZER]
        path = CLAIMS.path(meta["namespace"], meta["name"])
        self._client.replace(path, {**claim, "metadata": {**meta, "finalizers": finalizers}})
        self._client.delete(path, uid=meta["uid"])

    def _tell(self, pod: Object, waits: Waits) -> None:
        """Condition and Event, unless the pod has been told so already."""
        meta = pod["metadata"]
        conditions = list((pod.get("status") or {}).get("conditions") or ())
        before: Object = next((each for each in conditions if each.get("type") == "PodScheduled"), {})
        said = {"type": "PodScheduled", "status": "False", "reason": waits.reason, "message": waits.message}
        if all(before.get(key) == value for key, value in said.items()):
            return
        same = before.get("status") == said["status"]
        moment = before.get("lastTransitionTime") if same else None
        condition = {**said, "lastProbeTime": None, "lastTransitionTime": moment or time_text(self._now())}
        others = [each for each in conditions if each.get("type") != "PodScheduled"]
        patch = {
            "metadata": {"resourceVersion": meta["resourceVersion"]},
            "status": {"conditions": [*others, condition]},
        }
        self._client.merge_patch(PODS.path(meta["namespace"], meta["name"], "status"), patch)
        about = Regarding("v1", "Pod", meta["name"], meta["namespace"], meta["uid"])
        self._recorder.warning(about, reason="FailedScheduling", note=waits.message, action="Scheduling")
        _log.info("pod has to wait", pod=reference(pod), reason=waits.reason, why=waits.message)


class _Wakes:
    """A handler for which it matters only that something changed."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def on_change(self, change: Change, old: str | None, new: str | None) -> None:  # noqa: ARG002  # the protocol's
        self._wake()

    def on_synced(self) -> None:
        self._wake()


def _version_of(obj: watch.Object) -> str:
    return f"{obj['metadata']['uid']}/{obj['metadata']['resourceVersion']}"


def _devices(claim: Object) -> list[str]:
    results = claim["status"]["allocation"]["devices"].get("results") or ()
    return [f"{result['driver']}/{result['pool']}/{result['device']}" for result in results]
