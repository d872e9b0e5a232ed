"""Who of several candidates leads, decided by a Lease.

The rules are those of client-go's tools/leaderelection. A lease is taken over only after its duration has passed by our own
clock since we last saw it change, so that no two clocks are compared. This does not fence: a leader whose process was stopped
for long may act for a moment after another took over; what it writes must carry resourceVersions.
"""

import contextlib
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import structlog

from api.kube.client import Client
from api.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from api.kube.paths import LEASES
from api.kube.watch import Object
from api.timestamps import micro_time, utc_now

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """How long leading lasts; the defaults are those of the Kubernetes controllers."""

    lease_seconds: int = 15
    """Others take over this long after the last renewal they saw."""
    renew_seconds: float = 10.0
    """The leader gives up when it could not renew for this long: earlier than others may take over."""
    retry_seconds: float = 2.0
    """Between two tries, of the leader to renew and of the others to take over."""


class Leading(Protocol):
    """Who is told. Called by the elector's thread."""

    def on_started(self) -> None:
        """We lead. Start working and return; raising gives the lease back."""

    def on_stopped(self, why: str) -> None:
        """We lead no more. When this returns, nothing may be working any more."""

    def on_leader(self, identity: str) -> None:
        """Somebody leads, perhaps we; "" while nobody does."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A Lease, and when by our clock we first saw it like this."""

    holder: str
    renewed: str
    duration_seconds: float
    at_seconds: float


def seen(lease: Object, before: Seen | None, now: float) -> Seen:
    """What the Lease says; one that did not change was seen when it was seen first."""
    found = lease.get("spec")
    spec = found if isinstance(found, dict) else {}
    holder, renewed = str(spec.get("holderIdentity") or ""), str(spec.get("renewTime") or "")
    if before is not None and (before.holder, before.renewed) == (holder, renewed):
        return before
    duration = spec.get("leaseDurationSeconds")
    return Seen(holder, renewed, float(duration) if isinstance(duration, int) else 0.0, now)


def why_not_take(lease: Seen, identity: str, now: float) -> str | None:
    """What keeps us from the lease, None if nothing does."""
    if lease.holder in ("", identity) or now >= lease.at_seconds + lease.duration_seconds:
        return None
    return f"{lease.holder} leads, seen renewing {now - lease.at_seconds:.0f} s ago"


class LeaderElector:
    """Tries to lead until stopped, in a thread of its own. After a loss it is a candidate again."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        name: str,
        identity: str,
        leading: Leading,
        timing: LeaseTiming | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
        chance: Callable[[], float] = random.random,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        """`identity` must differ between candidates: the pod's name with something of chance."""
        self._client = client
        self._collection = LEASES.path(namespace)
        self._path = LEASES.path(namespace, name)
        self._meta = {"name": name, "namespace": namespace}
        self._identity = identity
        self._leading = leading
        self._timing = timing or LeaseTiming()
        self._clock = clock
        self._now = now
        self._chance = chance
        self._wait = wait
        self._lease: Object | None = None
        self._seen: Seen | None = None
        self._renewed_at: float | None = None
        self._working = False
        self._told_leader: str | None = None
        self._said = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"elector {name}", daemon=True)
        self._log = _log.bind(lease=f"{namespace}/{name}", identity=identity)

    def start(self) -> None:
        """Become a candidate."""
        self._thread.start()

    def stop(self, timeout_seconds: float = 15.0) -> bool:
        """Stop leading, give the lease back, end; False when that took longer. May be repeated."""
        self._stopping.set()
        if self._thread.ident is None or self._thread is threading.current_thread():
            return True
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def step(self) -> str:
        """One try to take or renew the lease, and what came of it in one sentence. For the elector's thread, and tests."""
        started = self._clock()
        led = self._renewed_at is not None
        try:
            why_not = self._try(started)
        except Exception as error:  # noqa: BLE001  # a thread that dies here would leave us working without the lease
            self._log.exception("lease could not be tried")
            why_not = f"{type(error).__name__}: {error}"
        if why_not is None:
            self._renewed_at = started
            # Won in the moment of stopping, it is only to be given back.
            if not led and not self._stopping.is_set():
                self._begin()
        elif self._renewed_at is not None:
            taken = self._seen is not None and self._seen.holder not in ("", self._identity)
            if taken or self._clock() >= self._renewed_at + self._timing.renew_seconds:
                self._lose(why_not)
        self._tell_leader()
        return (
            f"not leading: {why_not}" if self._renewed_at is None else f"leading{f', but {why_not}' if why_not else ''}"
        )

    def _run(self) -> None:
        while not self._stopping.is_set():
            sentence = self.step()
            if sentence.split(",")[0] != self._said:
                self._said = sentence.split(",")[0]
                self._log.info("leadership looked at", state=sentence)
            if not self._stopping.is_set():
                # Candidates that wait alike would all try in the same moment.
                share = 1.0 if self._renewed_at is not None else 1.0 + 0.2 * self._chance()
                self._wait(self._stopping, self._timing.retry_seconds * share)
        if self._renewed_at is not None:
            # Work ends before the lease is free, or two would work for a moment.
            self._lose("stopped")
            self._release()

    def _try(self, started: float) -> str | None:
        """None when we hold the lease now, else why not."""
        # An answer that comes after the deadline is of no use: others may lead by then.
        end = (self._renewed_at if self._renewed_at is not None else started) + self._timing.renew_seconds
        try:
            if self._renewed_at is not None and self._lease is not None:
                with contextlib.suppress(Conflict, NotFound):
                    self._write(self._lease, end)
                    return None
            self._lease = self._client.get(self._path, timeout_seconds=self._left(end))
        except NotFound:
            return self._create(end)
        except KubeError as error:
            return error.what
        self._seen = seen(self._lease, self._seen, self._clock())
        reason = why_not_take(self._seen, self._identity, self._clock())
        if reason is not None:
            return reason
        try:
            self._write(self._lease, end)
        except KubeError as error:
            return error.what
        return None

    def _create(self, end: float) -> str | None:
        lease: Object = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": self._meta,
            "spec": self._spec({}, self._identity),
        }
        try:
            self._accept(self._client.create(self._collection, lease, timeout_seconds=self._left(end)))
        except AlreadyExists:
            return "somebody else made the lease first"
        except KubeError as error:
            return error.what
        return None

    def _write(self, lease: Object, end: float) -> None:
        changed = {**lease, "spec": self._spec(lease.get("spec") or {}, self._identity)}
        self._accept(self._client.replace(self._path, changed, timeout_seconds=self._left(end)))

    def _accept(self, lease: Object) -> None:
        self._lease = lease
        self._seen = seen(lease, self._seen, self._clock())

    def _spec(self, old: Object, holder: str) -> Object:
        now = micro_time(self._now())
        spec = {**old, "holderIdentity": holder, "leaseDurationSeconds": self._timing.lease_seconds, "renewTime": now}
        if old.get("holderIdentity") != holder:
            transitions = old.get("leaseTransitions")
            spec["acquireTime"] = now
            # The first holder is no transition.
            spec["leaseTransitions"] = transitions + 1 if isinstance(transitions, int) else 0
        return spec

    def _left(self, end: float) -> float:
        return max(end - self._clock(), 0.05)

    def _begin(self) -> None:
        self._log.info("leadership won")
        self._working = True
        try:
            self._leading.on_started()
        except Exception as error:  # noqa: BLE001  # whoever cannot start must not keep others from it
            self._log.exception("leader could not start")
            self._lose(f"could not start: {error}")
            self._release()

    def _lose(self, why: str) -> None:
        self._renewed_at = None
        if not self._working:
            return
        self._working = False
        self._log.warning("leadership lost", why=why)
        try:
            self._leading.on_stopped(why)
        except Exception:  # noqa: BLE001  # the lease is to be given back whatever happens
            self._log.exception("leader could not stop")

    def _release(self) -> None:
        if self._lease is None:
            return
        # One second, as client-go writes it: zero is not valid.
        spec = {**self._spec(self._lease.get("spec") or {}, ""), "leaseDurationSeconds": 1}
        spec["leaseTransitions"] = (self._lease.get("spec") or {}).get("leaseTransitions", 0)
        try:
            released = {**self._lease, "spec": spec}
            self._accept(self._client.replace(self._path, released, timeout_seconds=self._timing.retry_seconds))
        except KubeError as error:
            self._log.info("lease could not be given back", why=error.what, remedy="it runs out by itself")

    def _tell_leader(self) -> None:
        holder = self._seen.holder if self._seen is not None else ""
        if holder == self._told_leader:
            return
        self._told_leader = holder
        try:
            self._leading.on_leader(holder)
        except Exception:  # noqa: BLE001  # a listener's mistake must not cost the lease
            self._log.exception("leader could not be told")
