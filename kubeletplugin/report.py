"""Telling the cluster what this node has, and that somebody looks after it.

Three objects are kept: the NodeInventory's spec (what was found), this instance's entry in its status (whether the kubelet
holds on to it), and this instance's Lease (that it is alive). Written by server-side apply, so that each write is one
request whether the object is there or not. Nothing is read but the Node, once; nothing is polled.
"""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

import structlog

from api.hardware import Machine
from api.inventory import (
    INVENTORY_MANAGER,
    LEASE_SECONDS,
    Instance,
    Owner,
    encode_instance,
    encode_spec,
    instance_manager,
)
from api.kube.backoff import Backoff
from api.kube.errors import KubeError, NotFound
from api.kube.paths import LEASES, NODE_INVENTORIES, NODES
from api.names import lease_name
from api.timestamps import micro_time, time_text

RENEW_SECONDS = 10.0
"""A quarter of LEASE_SECONDS: three renewals may be lost before anybody worries."""
REPEAT_SECONDS = 600.0
"""How often the inventory is applied though nothing changed, in case somebody deleted it. An apply without effect writes
nothing in the API server, and no watch sees it."""

_log = structlog.get_logger(__name__)


class Cluster(Protocol):
    """What is needed of `api.kube.client.Client`."""

    def get(self, path: str, /) -> dict[str, Any]: ...
    def delete(self, path: str, /) -> Any: ...
    def apply(self, path: str, obj: dict[str, Any], /, *, field_manager: str, force: bool) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Written:
    """What the API server has of us, as far as we know; None where that is nothing."""

    owner: Owner | None = None
    machine: Machine | None = None
    instance: Instance | None = None
    lease_uid: str | None = None
    renewed: float = float("-inf")
    """Monotonic seconds."""
    repeated: float = float("-inf")
    """When the spec was last applied, monotonic seconds."""


class Reporter:
    """Keeps the three objects as they should be, in one thread of its own."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        node: str,
        namespace: str,
        instance: str,
        version: str,
        clock: Callable[[], float],
        wall: Callable[[], datetime],
        backoff: Backoff,
    ) -> None:
        self._cluster, self._node, self._namespace = cluster, node, namespace
        self._clock, self._wall, self._backoff = clock, wall, backoff
        self._instance = Instance(instance, registered=False, lease=lease_name(instance), version=version)
        self._machine: Machine | None = None
        self._written = Written()
        self._sign_of_life = False
        self._not_before = float("-inf")
        self._news = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="report", daemon=True)
        self.last_error: str | None = "nothing reported yet"

    def found(self, machine: Machine) -> None:
        """Report this machine from now on."""
        with self._news:
            self._machine = machine
            self._news.notify()

    def registered(self, registered: bool) -> None:  # noqa: FBT001  # a callback's one value
        """Report whether the kubelet holds on to this instance; said at once, with a renewal as a sign of life."""
        with self._news:
            if registered != self._instance.registered or not self._instance.registered_at:
                self._instance = replace(self._instance, registered=registered, registered_at=time_text(self._wall()))
                self._sign_of_life = True
                self._news.notify()

    @property
    def age_seconds(self) -> float | None:
        """Since the API server last took the sign of life; None where it never has."""
        renewed = self._written.renewed
        return None if renewed == float("-inf") else self._clock() - renewed

    def start(self) -> None:
        """Begin, in a thread."""
        self._instance = replace(self._instance, started_at=time_text(self._wall()))
        self._thread.start()

    def stop(self) -> None:
        """End, and take this instance's own marks away: the entry and the Lease. The inventory and the slices stay: in a
        rolling update the next instance is there already, and running pods need neither (docs/architecture.md)."""
        with self._news:
            self._stopping = True
            self._news.notify()
        if self._thread.ident is not None:
            self._thread.join(timeout=15)
        try:
            if self._written.instance is not None:
                with contextlib.suppress(NotFound):  # gone with its inventory
                    self._apply_instance(None)
            if self._written.lease_uid is not None:
                self._cluster.delete(self._lease_path)
        except KubeError as error:
            _log.info("own marks left behind", why=str(error), then="the controller sees the silence in 40 s")

    def _run(self) -> None:
        while True:
            pause = self.step()
            with self._news:
                self._news.wait_for(lambda: self._stopping or self._is_due(), timeout=pause)
                if self._stopping:
                    return

    def step(self) -> float:
        """Do what is due; the seconds until something will be, if nothing happens before."""
        try:
            self._renew_if_due()
            self._apply_if_changed()
        except Exception as error:  # noqa: BLE001  # the edge of a step: a thread that dies would look like a dead node
            why = error.what if isinstance(error, KubeError) else f"{type(error).__name__}: {error}"
            if why != self.last_error:
                _log.warning("report delayed", why=why)
            self.last_error = why
            pause = self._backoff.delay_seconds()
            self._not_before = self._clock() + pause
            return pause
        if self.last_error is not None:
            _log.info("report accepted")
        self.last_error = None
        return max(0.0, self._written.renewed + RENEW_SECONDS - self._clock())

    def _is_due(self) -> bool:
        """Called with the lock held."""
        now, written = self._clock(), self._written
        changed = self._machine != written.machine or self._instance != written.instance
        due = self._sign_of_life or now >= written.renewed + RENEW_SECONDS
        return now >= self._not_before and (due or (changed and self._machine is not None))

    def _renew_if_due(self) -> None:
        now = self._clock()
        with self._news:
            if not self._sign_of_life and now < self._written.renewed + RENEW_SECONDS:
                return
            self._sign_of_life = False
        try:
            self._renew(now)
        except BaseException:
            with self._news:
                self._sign_of_life = True  # still to be given
            raise

    def _renew(self, now: float) -> None:
        owner = self._written.owner or self._read_owner()
        lease = self._cluster.apply(
            self._lease_path,
            {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {
                    "name": self._instance.lease,
                    "namespace": self._namespace,
                    "ownerReferences": [owner.reference()],
                },
                "spec": {
                    "holderIdentity": self._node,
                    "leaseDurationSeconds": LEASE_SECONDS,
                    "renewTime": micro_time(self._wall()),
                },
            },
            field_manager=INVENTORY_MANAGER,
            force=True,
        )
        uid = lease["metadata"]["uid"]
        if self._written.lease_uid not in (None, uid):
            # Somebody deleted it; most likely the Node went, and all that it owned with it. Begin anew.
            _log.info("lease made anew", lease=self._instance.lease)
            owner = self._read_owner()
            self._written = Written()
            if owner.uid != lease["metadata"]["ownerReferences"][0]["uid"]:
                with self._news:
                    self._sign_of_life = True
        self._written = replace(self._written, owner=owner, lease_uid=uid, renewed=now)

    def _apply_if_changed(self) -> None:
        with self._news:
            machine, instance = self._machine, self._instance
        owner = self._written.owner
        if owner is None or machine is None:
            return
        now = self._clock()
        if machine != self._written.machine or now >= self._written.repeated + REPEAT_SECONDS:
            self._cluster.apply(
                NODE_INVENTORIES.path(name=self._node),
                encode_spec(owner, machine),
                field_manager=INVENTORY_MANAGER,
                force=True,
            )
            if machine != self._written.machine:
                _log.info("inventory reported", gpus=len(machine.gpus), nics=len(machine.nics))
            self._written = replace(self._written, machine=machine, repeated=now, instance=None)
        if instance != self._written.instance:
            try:
                self._apply_instance(instance)
            except NotFound:
                self._written = Written()  # the inventory was deleted, most likely with its Node: begin anew
                raise
            self._written = replace(self._written, instance=instance)

    def _apply_instance(self, instance: Instance | None) -> None:
        self._cluster.apply(
            NODE_INVENTORIES.path(name=self._node, subresource="status"),
            encode_instance(self._node, instance),
            field_manager=instance_manager(self._instance.id),
            force=True,
        )

    def _read_owner(self) -> Owner:
        return Owner(self._node, self._cluster.get(NODES.path(name=self._node))["metadata"]["uid"])

    @property
    def _lease_path(self) -> str:
        return LEASES.path(self._namespace, self._instance.lease)
