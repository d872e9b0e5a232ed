"""Making a node's slices what they should be, and telling of it."""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import structlog

from api.inventory import Owner, encode_instance, instance_manager
from api.kube.errors import Conflict, Invalid, KubeError, NotFound
from api.kube.paths import LEASES, NODE_INVENTORIES, SLICES
from api.timestamps import time_text, utc_now
from controller.conditions import MANAGER, status_of
from controller.decide import Decision, Facts, decide
from controller.liveness import Alive
from controller.plan import Adopted, Create, Delete, Update, Write, adoption, plan
from controller.settings import Settings
from controller.signs import LeaseInfo
from controller.state import State, slim

Object = dict[str, Any]

UNSEEN_SECONDS = 60.0
"""How long the watch may take to show what we wrote before we ask for it (upstream's mutation cache: the same)."""
FORGET_SECONDS = 3600.0
"""How long the marks of a plugin that was killed stay once another has taken its place."""
DEAF_SECONDS = 5.0
"""How soon to look again while the watch on Leases is down."""

_log = structlog.get_logger(__name__)


class Api(Protocol):
    """What the reconciler asks of the API server (`api.kube.client.Client`)."""

    def get(self, path: str, query: Mapping[str, str | int | bool] | None = None) -> Object: ...

    def create(self, path: str, obj: Object) -> Object: ...

    def replace(self, path: str, obj: Object) -> Object: ...

    def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None) -> Object: ...

    def apply(self, path: str, obj: Object, *, field_manager: str, force: bool = False) -> Object: ...


class Observer(Protocol):
    """Who wants to know, for metrics. Called from several threads; it neither waits nor raises."""

    def wrote(self, verb: str) -> None:
        """A slice: `create`, `update` or `delete`."""

    def decided(self, node: str, decision: Decision, left_out: int) -> None:
        """What a node's slices now are; so many of its devices were left out of them."""

    def passed(self, seconds: float, *, failed: bool) -> None:
        """A pass over one node has ended."""


class Unobserved:
    """Nobody wants to know."""

    def wrote(self, verb: str) -> None: ...

    def decided(self, node: str, decision: Decision, left_out: int) -> None: ...

    def passed(self, seconds: float, *, failed: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Listening:
    """How the watch on Leases is doing."""

    deaf: bool = False
    outages: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pass did, or why it did nothing."""

    node: str
    reason: str
    message: str
    created: int = 0
    updated: int = 0
    deleted: int = 0
    look_again: float | None = None

    @property
    def text(self) -> str:
        """One sentence."""
        done = [
            f"{count} {verb}"
            for count, verb in ((self.deleted, "deleted"), (self.updated, "updated"), (self.created, "created"))
            if count
        ]
        return f"{self.node}: {self.message}" + (f" (slices: {', '.join(done)})" if done else "")


class Reconciler:
    """One pass over one node at a time; different nodes in different threads."""

    def __init__(
        self,
        api: Api,
        state: State,
        settings: Settings,
        *,
        listening: Callable[[], Listening] = Listening,
        observer: Observer | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._api = api
        self._state = state
        self._settings = settings
        self._listening = listening
        self._observer = observer or Unobserved()
        self._clock = clock
        self._now = now
        self._adopted: dict[str, dict[int, Adopted]] = {}
        self._said: dict[str, str] = {}

    def reconcile(self, node: str) -> Outcome:
        """Look at a node and write what is needed; nothing if nothing is. KubeError when the API server would not."""
        began = self._clock()
        try:
            outcome = self._reconcile(node, began)
        except BaseException:
            self._observer.passed(self._clock() - began, failed=True)
            raise
        self._observer.passed(self._clock() - began, failed=False)
        return outcome

    def _reconcile(self, node: str, began: float) -> Outcome:
        self._state.settle(node, settled=False)
        listening = self._listening()
        self._state.listen(deaf=listening.deaf, outages=listening.outages)
        self._look_for_unseen(node)
        facts, decision, writes = self._decided(node)
        if decision.reason == "NoLiveInstance" and writes and decision.devices and self._heard_meanwhile(facts):
            facts, decision, writes = self._decided(node)
        try:
            for write in writes:
                self._write(node, write)
        except Invalid as error:
            self._tell(facts, Decision((), False, "Refused", error.what, decision.health))  # noqa: FBT003
            raise
        if decision.slices is not None:
            self._forget_surplus(node, len(decision.slices))
            self._tell(facts, decision)
            self._observer.decided(node, decision, len(facts.pool.left_out))
        if isinstance(decision.health, Alive):
            self._forget_the_dead(node)
        if decision.published:
            self._state.republished(node, facts.signs.wiped_at)
        self._state.settle(node, settled=decision.published)
        look_again = decision.look_again
        if listening.deaf:
            look_again = min(look_again or float("inf"), self._clock() + DEAF_SECONDS)
        outcome = Outcome(
            node,
            decision.reason,
            decision.message,
            created=sum(isinstance(write, Create) for write in writes),
            updated=sum(isinstance(write, Update) for write in writes),
            deleted=sum(isinstance(write, Delete) for write in writes),
            look_again=look_again,
        )
        self._say(outcome, wrote=bool(writes), seconds=self._clock() - began)
        return outcome

    # Deciding.

    def _decided(self, node: str) -> tuple[Facts, Decision, tuple[Write, ...]]:
        facts = self._state.facts(node)
        decision = decide(
            facts,
            self._clock(),
            driver=self._settings.driver,
            stale_seconds=self._settings.stale_seconds,
            allow_shared_ownership=self._settings.allow_shared_ownership,
            effects=self._settings.health_effects,
        )
        if decision.slices is None:
            return facts, decision, ()
        owner = Owner(node, facts.node_uid) if facts.node_uid else None
        return (
            facts,
            decision,
            plan(decision.slices, self._state.slices(node), owner, self._adopted.get(node, {})),
        )

    def _heard_meanwhile(self, facts: Facts) -> bool:
        """Whether a Lease was renewed after all: a watch can be silent too, so we ask before we call a plugin dead."""
        heard = False
        for entry in facts.inventory.instances if facts.inventory else ():
            if entry.registered:
                try:
                    lease = lease_info(self._api.get(LEASES.path(self._settings.namespace, entry.lease)))
                except NotFound:
                    continue
                heard = (self._state.lease_is(lease) and lease.holder == facts.node) or heard
        return heard

    def _look_for_unseen(self, node: str) -> None:
        for obj in self._state.unseen(node, self._clock() - UNSEEN_SECONDS):
            self._refresh(obj)

    # Doing.

    def _write(self, node: str, write: Write) -> None:
        match write:
            case Delete():
                self._delete(node, write)
            case Update(index, obj):
                try:
                    answer = self._api.replace(SLICES.path(name=obj["metadata"]["name"]), obj)
                except (NotFound, Conflict):
                    self._refresh(obj)
                    raise
                self._answered(node, index, obj, answer)
                self._observer.wrote("update")
            case Create(index, obj):
                self._answered(node, index, obj, self._api.create(SLICES.path(), obj))
                self._observer.wrote("create")

    def _delete(self, node: str, write: Delete) -> None:
        obj = next((obj for obj in self._state.slices(node) if obj["metadata"]["uid"] == write.uid), None)
        if obj is None:
            return  # deleted by somebody else since the plan was made
        self._state.deleting(write.uid)
        try:
            self._api.delete(SLICES.path(name=write.name), uid=write.uid, resource_version=write.resource_version)
        except NotFound:
            _log.debug("slice gone already", node=node, slice=write.name)
        except KubeError as error:
            # Also where the answer was lost: taken for somebody else's, the deletion costs a wait for the next sign of life.
            self._state.not_deleted(write.uid)
            if isinstance(error, Conflict):
                self._refresh(obj)
            raise
        else:
            self._observer.wrote("delete")
        self._state.deleted(obj)

    def _refresh(self, obj: Object) -> None:
        """Look what became of a slice."""
        try:
            live = self._api.get(SLICES.path(name=obj["metadata"]["name"]))
        except NotFound:
            self._state.slice_gone(obj)
            return
        if live["metadata"]["uid"] != obj["metadata"]["uid"]:
            self._state.slice_gone(obj)
        self._state.slice_is(live)

    def _answered(self, node: str, index: int, sent: Object, answer: Object) -> None:
        adopted = adoption(sent["spec"], answer["spec"])
        known = self._adopted.setdefault(node, {})
        if adopted is None:
            known.pop(index, None)
        else:
            if adopted.dropped and known.get(index) != adopted:
                _log.warning("fields dropped by the API server", node=node, index=index, fields=adopted.dropped)
            known[index] = adopted
        self._state.written(answer)

    def _forget_surplus(self, node: str, count: int) -> None:
        known = self._adopted.get(node, {})
        for index in [index for index in known if index >= count]:
            del known[index]
        if not known:
            self._adopted.pop(node, None)

    # Telling.

    def _tell(self, facts: Facts, decision: Decision) -> None:
        obj = self._state.inventory_object(facts.node)
        if obj is None:
            return
        status = status_of(
            obj,
            decision,
            slices=len(decision.slices or ()),
            left_out=len(facts.pool.left_out),
            dropped=_dropped(self._adopted.get(facts.node, {}).values()),
            now=time_text(self._now()),
        )
        if status is not None:
            path = NODE_INVENTORIES.path(name=facts.node, subresource="status")
            try:
                self._state.inventory_written(slim(self._api.apply(path, status, field_manager=MANAGER, force=True)))
            except NotFound:
                _log.debug("inventory gone before its status was written", node=facts.node)

    def _forget_the_dead(self, node: str) -> None:
        """Take away what instances that were killed left behind: they cannot, and nobody else would."""
        for entry in self._state.long_silent(node, self._clock() - FORGET_SECONDS):
            path = NODE_INVENTORIES.path(name=node, subresource="status")
            gone = encode_instance(node, None)
            # The Lease first: without the entry nobody would know of it any more.
            # Another's is not ours to delete, whatever this node's inventory says.
            if self._state.lease_holder(entry.lease) in {None, node}:
                with contextlib.suppress(NotFound):
                    self._api.delete(LEASES.path(self._settings.namespace, entry.lease))
            try:
                answer = self._api.apply(path, gone, field_manager=instance_manager(entry.id), force=True)
            except NotFound:
                _log.debug("inventory gone before a dead instance was forgotten", node=node, instance=entry.id)
            else:
                self._state.inventory_written(slim(answer))
                _log.info("dead instance forgotten", node=node, instance=entry.id)

    def _say(self, outcome: Outcome, *, wrote: bool, seconds: float) -> None:
        if wrote or self._said.get(outcome.node) != outcome.text:
            _log.info(
                "node reconciled",
                node=outcome.node,
                reason=outcome.reason,
                outcome=outcome.text,
                seconds=round(seconds, 4),
            )
        self._said[outcome.node] = outcome.text
        if outcome.reason == "NoInventory":
            del self._said[outcome.node]  # the node may never be heard of again


def lease_info(obj: Mapping[str, Any]) -> LeaseInfo:
    """What matters of a Lease (parsed JSON)."""
    spec = obj.get("spec") or {}
    return LeaseInfo(obj["metadata"]["name"], str(spec.get("renewTime") or ""), str(spec.get("holderIdentity") or ""))


def _dropped(adopted: Iterable[Adopted]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(path for one in adopted for path in one.dropped))
