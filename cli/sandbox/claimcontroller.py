"""A stand-in for the claim controller of kube-controller-manager: claims from templates, and the end of reservations.

    controller = ClaimController(client)    # makes siblings of the client and closes those
    controller.start()                      # returns when pods, claims and templates are listed; one thread until stop()
    controller.stop()                       # may be repeated

It does what pkg/controller/resourceclaim/controller.go of 1.37 does, without pod groups. What it decides by is in
`claimrules`; claims whose pod is gone are deleted by the API server's garbage collector, and let go of here.
"""

import threading
import time
from collections.abc import Callable

import structlog

from api.kube.client import Client
from api.kube.errors import ApiError, Closed, Conflict, KubeError, NotFound, Unreachable
from api.kube.events import EventRecorder, Regarding
from api.kube.paths import CLAIMS, PODS, Resource
from api.kube.reflector import Change, Reflector
from cli.sandbox import claimrules as rules
from cli.sandbox.claimrules import Object
from controller.queue import WorkQueue

_log = structlog.get_logger(__name__)

TEMPLATES = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
FIELD_MANAGER = "ResourceClaimController"
SYNC_SECONDS = 10.0
FIRST_SECONDS, LIMIT_SECONDS = 0.05, 10.0
"""Pause of something that went wrong, doubled each time. (Upstream begins with 5 ms and waits up to 1000 s.)"""

_Key = tuple[str, str]
"""What kind, and namespace/name."""


class _Hears:
    """Hands each change of one kind on."""

    def __init__(self, changed: Callable[[Object | None, Object | None], None]) -> None:
        self._told = changed

    def on_change(self, change: Change, old: Object | None, new: Object | None) -> None:  # noqa: ARG002  # the protocol's
        self._told(old, new)

    def on_synced(self) -> None:
        """Nothing to do: each object of the list has been a change."""


class ClaimController:
    """Makes and ends claims in a thread of its own, between `start` and `stop`."""

    def __init__(self, client: Client, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client.sibling()
        self._events = EventRecorder(client, "resourceclaim-controller", "sandbox")
        self._pods = self._reflector(client, PODS, self._pod_changed)
        self._claims = self._reflector(client, CLAIMS, self._claim_changed)
        self._templates = self._reflector(client, TEMPLATES, self._template_changed)
        self._made: dict[tuple[str, str], Object] = {}
        """Claims made lately, by the pod's UID and its name for them: the watch may not have told of them yet."""
        self._queue: WorkQueue[_Key] = WorkQueue(clock, retry_seconds=FIRST_SECONDS, retry_max_seconds=LIMIT_SECONDS)
        self._thread = threading.Thread(target=self._run, name="claim-controller", daemon=True)

    def start(self) -> None:
        """Begin. Unreachable when the API server does not list everything in time."""
        self._events.start()
        reflectors = (self._templates, self._claims, self._pods)
        for reflector in reflectors:
            reflector.start()
        for reflector in reflectors:
            if not reflector.wait_synced(SYNC_SECONDS):
                why = reflector.state.last_error or f"no answer within {SYNC_SECONDS:.0f} s"
                self.stop()
                raise Unreachable(self._client.server.url, f"pods, claims and templates could not be listed: {why}")
        self._thread.start()

    def stop(self) -> None:
        """End; claims stay as they are."""
        self._queue.close()
        for reflector in (self._templates, self._claims, self._pods):
            reflector.stop()
        self._client.close()
        if self._thread.ident is not None:
            self._thread.join(5.0)
        self._events.stop()

    # What changes.

    def _pod_changed(self, old: Object | None, new: Object | None) -> None:
        if old is not None and (new is None or old["metadata"]["uid"] != new["metadata"]["uid"]):
            self._enqueue_claims(old)
        if new is not None:
            if rules.is_done(new):
                self._enqueue_claims(new)
            if new["spec"].get("resourceClaims"):
                self._queue.add(("pod", rules.key_of(new)))

    def _enqueue_claims(self, pod: Object) -> None:
        namespace = pod["metadata"]["namespace"]
        named = {f"{namespace}/{name}" for name in rules.claim_names(pod).values() if name}
        known = self._claims.snapshot().items()
        reserved = {key for key, claim in known if rules.is_reserved_for(claim, pod)}
        for key in sorted(named | reserved):
            self._queue.add(("claim", key))

    def _claim_changed(self, old: Object | None, new: Object | None) -> None:
        claim = new or old or {}
        self._queue.add(("claim", rules.key_of(claim)))
        # Pods that wait for it, or whose generated claim somebody deleted.
        namespace, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
        for pod in self._pods.snapshot().values():
            if pod["metadata"]["namespace"] == namespace and (
                name in rules.claim_names(pod).values() or rules.is_owned_by(claim, pod)
            ):
                self._queue.add(("pod", rules.key_of(pod)))

    def _template_changed(self, old: Object | None, new: Object | None) -> None:
        template = new or old or {}
        namespace, name = template["metadata"]["namespace"], template["metadata"]["name"]
        for pod in self._pods.snapshot().values():
            if pod["metadata"]["namespace"] == namespace and any(
                entry.get("resourceClaimTemplateName") == name for entry in pod["spec"].get("resourceClaims") or ()
            ):
                self._queue.add(("pod", rules.key_of(pod)))

    # The thread.

    def _run(self) -> None:
        while (key := self._queue.take()) is not None:
            kind, name = key
            try:
                if kind == "pod":
                    self._sync_pod(name)
                else:
                    self._sync_claim(name)
            except Closed:
                return
            except NotFound:
                self._queue.done(key)  # gone, or not there yet, which the watch will tell
            except KubeError as error:
                if not isinstance(error, Conflict):
                    _log.warning("claims could not be brought on", kind=kind, name=name, why=error.what)
                self._queue.done(key, retry=True)
            except Exception:  # noqa: BLE001  # the edge of one key: a thread that dies would leave all others waiting
                _log.exception("claims could not be brought on", kind=kind, name=name)
                self._queue.done(key, retry=True)
            else:
                self._queue.done(key)

    # Pods.

    def _sync_pod(self, key: str) -> None:
        pod = self._pods.snapshot().get(key)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return
        new: dict[str, str] = {}
        names = rules.claim_names(pod)
        for entry in pod["spec"].get("resourceClaims") or ():
            template, pod_claim = entry.get("resourceClaimTemplateName"), entry["name"]
            if template and not self._has_claim(pod, pod_claim, names):
                new[pod_claim] = self._make(pod, pod_claim, template)
            else:
                self._made.pop((pod["metadata"]["uid"], pod_claim), None)
        if new:
            namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
            status = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": namespace},
                "status": {"resourceClaimStatuses": rules.statuses(pod, new)},
            }
            path = PODS.path(namespace, name, "status")
            self._client.apply(path, status, field_manager=FIELD_MANAGER, force=True)
        if pod["spec"].get("nodeName"):
            self._reserve(pod)

    def _has_claim(self, pod: Object, pod_claim: str, names: dict[str, str | None]) -> bool:
        if pod_claim not in names:
            return False
        name = names[pod_claim]
        if name is None:
            return True
        # The copy may be old in both directions, and a second claim must not be made: ask.
        try:
            claim = self._client.get(CLAIMS.path(pod["metadata"]["namespace"], name))
        except NotFound:
            return False
        return rules.is_owned_by(claim, pod)

    def _make(self, pod: Object, pod_claim: str, template_name: str) -> str:
        """The name of the claim for the pod: one that is there already, or a new one."""
        memory = (pod["metadata"]["uid"], pod_claim)
        known = self._claims.snapshot()
        claim = rules.made_for(pod, pod_claim, known.values())
        if claim is None and (made := self._made.pop(memory, None)) is not None:
            claim = self._still_there(made)
        if claim is None:
            namespace = pod["metadata"]["namespace"]
            try:
                template = self._client.get(TEMPLATES.path(namespace, template_name))
                claim = self._client.create(CLAIMS.path(namespace), rules.claim_for(pod, pod_claim, template))
            except Closed:
                raise
            except KubeError as error:
                missing = isinstance(error, NotFound)
                failed = f'resource claim template "{template_name}"' if missing else "create ResourceClaim"
                words = error.message if isinstance(error, ApiError) else error.what
                self._tell_people(pod, f"PodResourceClaim {pod_claim}: {failed}: {words}")
                raise
            _log.info("claim made", claim=rules.key_of(claim), pod=rules.key_of(pod))
        self._made[memory] = claim
        return str(claim["metadata"]["name"])

    def _still_there(self, claim: Object) -> Object | None:
        try:
            found = self._client.get(CLAIMS.path(claim["metadata"]["namespace"], claim["metadata"]["name"]))
        except NotFound:
            return None
        return found if found["metadata"]["uid"] == claim["metadata"]["uid"] else None

    def _reserve(self, pod: Object) -> None:
        """Let a pod that was put on its node without the scheduler use its claims."""
        namespace = pod["metadata"]["namespace"]
        known = self._claims.snapshot()
        for pod_claim, name in rules.claim_names(pod).items():
            claim = known.get(f"{namespace}/{name}")
            if not pod_claim or claim is None or rules.is_reserved_for(claim, pod):
                continue
            if (claim.get("status") or {}).get("allocation") is not None and not rules.is_done(pod):
                meta = pod["metadata"]
                user = {"resource": "pods", "name": meta["name"], "uid": meta["uid"]}
                users = [*rules.reserved_for(claim), user]
                self._write_status(claim, {**claim["status"], "reservedFor": users})

    # Claims.

    def _sync_claim(self, key: str) -> None:
        claim = self._claims.snapshot().get(key)
        if claim is None:
            return
        users = rules.reserved_for(claim)
        remaining = [user for user in users if not rules.is_pod(user) or self._still_uses(claim, user)]
        if len(remaining) < len(users):
            claim = self._release(claim, remaining)
        elif not remaining and "deletionTimestamp" in claim["metadata"]:
            if _is_protected(claim) and (claim.get("status") or {}).get("allocation") is not None:
                claim = self._write_status(claim, _without_allocation(claim))
            claim = self._unprotect(claim)
        if not remaining and "deletionTimestamp" not in claim["metadata"]:
            self._delete_unused(claim)

    def _still_uses(self, claim: Object, user: Object) -> bool:
        namespace = claim["metadata"]["namespace"]
        pod = self._pods.snapshot().get(f"{namespace}/{user['name']}")
        if pod is None:
            # The watch may not have told of it yet, and taking it away while it is being scheduled would be bad.
            try:
                pod = self._client.get(PODS.path(namespace, user["name"]))
            except NotFound:
                return False
        return bool(pod["metadata"]["uid"] == user["uid"]) and not rules.is_done(pod)

    def _release(self, claim: Object, remaining: list[Object]) -> Object:
        """Write who still uses it; without any user it is deallocated, so that it can be allocated anew elsewhere."""
        status = dict(claim["status"])
        if remaining:
            status["reservedFor"] = remaining
        else:
            status = _without_allocation(claim) if _is_protected(claim) else status
            status.pop("reservedFor", None)
        written = self._write_status(claim, status)
        _log.info("reservations removed", claim=rules.key_of(claim), left=len(remaining))
        if (written.get("status") or {}).get("allocation") is None:
            return self._unprotect(written)
        return written

    def _delete_unused(self, claim: Object) -> None:
        """A claim made for a pod that will not run goes before the pod does."""
        owner = rules.owning_pod(claim)
        if owner is None:
            return
        namespace = claim["metadata"]["namespace"]
        pod = self._pods.snapshot().get(f"{namespace}/{owner[0]}")
        if pod is not None and (pod["metadata"]["uid"] != owner[1] or rules.is_done(pod)):
            self._client.delete(CLAIMS.path(namespace, claim["metadata"]["name"]), uid=claim["metadata"]["uid"])
            _log.info("unused claim deleted", claim=rules.key_of(claim))

    def _write_status(self, claim: Object, status: Object) -> Object:
        # Not a patch: it has to fail when somebody changed the claim meanwhile.
        meta = claim["metadata"]
        path = CLAIMS.path(meta["namespace"], meta["name"], "status")
        return self._client.replace(path, {**claim, "status": dict(status)})

    def _unprotect(self, claim: Object) -> Object:
        if not _is_protected(claim):
            return claim
        meta = claim["metadata"]
        finalizers = [each for each in meta["finalizers"] if each != rules.FINALIZER]
        changed = {**claim, "metadata": {**meta, "finalizers": finalizers}}
        return self._client.replace(CLAIMS.path(meta["namespace"], meta["name"]), changed)

    # How.

    def _tell_people(self, pod: Object, note: str) -> None:
        meta = pod["metadata"]
        regarding = Regarding("v1", "Pod", meta["name"], meta["namespace"], meta["uid"])
        self._events.warning(regarding, reason="FailedResourceClaimCreation", note=note, action="Creating")

    @staticmethod
    def _reflector(
        client: Client, kind: Resource, changed: Callable[[Object | None, Object | None], None]
    ) -> Reflector[Object]:
        return Reflector(client, kind.path(), handler=_Hears(changed), transform=lambda obj: obj)


def _is_protected(claim: Object) -> bool:
    return rules.FINALIZER in (claim["metadata"].get("finalizers") or ())


def _without_allocation(claim: Object) -> dict[str, object]:
    return {field: value for field, value in claim["status"].items() if field != "allocation"}
