"""Looking at one claim's traces, and carrying out what the table says.

Everything here wants the claim's lock held. What to do is decided in `kubeletplugin.claims.states`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import structlog

from api.hardware import Machine
from api.names import ClaimRef
from api.refusals import Reason, Refused
from kubeletplugin.claims.injection import CdiWriter
from kubeletplugin.claims.locks import ClaimLocks, Lock
from kubeletplugin.claims.record import Damaged, Newer, Record, is_uid, missing_devices, refreshed
from kubeletplugin.claims.refusals import Changing, Held, HeldUnreadably, NoHold
from kubeletplugin.claims.states import Step, Traces
from kubeletplugin.claims.store import Release, Store

_log = structlog.get_logger(__name__)

_T = TypeVar("_T")

_ROUNDS = 3
"""How often a hold that proves stale is tried again; more means that others are at it, and the kubelet asks again anyway."""


@dataclass(frozen=True, slots=True)
class Task:
    """What the steps are carried out for."""

    ref: ClaimRef
    boot_id: str
    """Empty where the machine is not known."""
    now: float
    """Seconds since boot."""
    lock: Lock
    holds: frozenset[str] = frozenset()
    """What the claim holds before the first step."""
    record: Record | None = None
    """What is to be on disk in the end, for steps that build."""
    machine: Machine | None = None
    undo: bool = False
    """Whether a failure takes back what was done: only for a claim that was not prepared before, since containers of one
    that was may be running."""
    keep_cdi: bool = False
    """With `undo`: the claim had a CDI file before, which such containers need."""


class Acts:
    """Eyes and hands for one claim at a time."""

    def __init__(self, store: Store, cdi: CdiWriter, locks: ClaimLocks, *, node: str) -> None:
        self._store, self._cdi, self._locks, self._node = store, cdi, locks, node

    def look(self, uid: str, machine: Machine | None, *, in_order: bool = False) -> Traces:
        """The traces of a claim. OSError of the disk; Refused where the CDI content cannot be made at present.

        `in_order`: the last call for the claim was not cut off. Then a claim with nothing else, in quarantine neither, holds
        nothing, and one with a record no more than that says, so that the holds of all other claims need not be looked at.
        """
        found = self._store.read(uid)
        record = found if isinstance(found, Record) else None
        right = comparable = False
        if machine is not None and record is not None and not missing_devices(record, machine):
            comparable, right = True, self._cdi.matches(record, machine)
        readable = True if right else self._cdi.readable(uid)
        present = readable is not None
        if in_order and record is not None:
            holds = self._store.held_of(uid, record.exclusive)
        elif in_order and found is None and not present and not self._store.was_set_aside(uid, boot_id=""):
            holds = frozenset()
        else:
            holds = self._store.holds_of(uid)
        return Traces(
            record=record,
            damaged=found.problem if isinstance(found, Damaged) else None,
            newer=found.format if isinstance(found, Newer) else None,
            outdated=record is not None and machine is not None and refreshed(record, machine) != record,
            holds=holds,
            cdi_present=present,
            cdi_right=right if comparable else readable is True,
            released=self._store.release_of(uid) is not None,
            set_aside=found is None
            and (bool(holds) or present)
            and self._store.was_set_aside(uid, boot_id=machine.boot_id if machine is not None else ""),
        )

    def carry_out(self, steps: Iterable[Step], task: Task) -> None:
        """Do the steps in order. The first OSError or Refused ends it, after taking back what `task.undo` says (Case G9)."""
        undo: list[Callable[[], None]] = []
        try:
            for step in steps:
                self._do(step, task, undo)
        except Exception:
            if not (task.undo and _take_back(undo)):
                task.lock.disorder = True
            raise

    def _do(self, step: Step, task: Task, undo: list[Callable[[], None]]) -> None:
        """One step. What takes it back is noted before it is done: a write that failed may have happened all the same."""
        uid, store = task.ref.uid, self._store
        match step:
            case Step.TAKE_HOLDS:
                self._take_holds(_needed(task.record), task, undo)
            case Step.FORGET_RELEASE:
                store.forget_release(uid)
            case Step.WRITE_RECORD:
                undo.append(lambda: store.remove(uid))
                store.write(_needed(task.record))
            case Step.WRITE_CDI:
                if not task.keep_cdi:
                    undo.append(lambda: self._cdi.remove(uid))
                self._cdi.write(_needed(task.record), _needed(task.machine))
            case Step.MARK_RELEASED:
                self._mark_released(task)
            case Step.REMOVE_CDI:
                self._cdi.remove(uid)
            case Step.DROP_HOLDS:
                for device in sorted(task.holds):
                    store.drop(device, uid)
            case Step.REMOVE_RECORD:
                store.remove(uid)
            case Step.SET_RECORD_ASIDE:
                path = store.set_aside(uid, boot_id=task.boot_id)
                _log.error("record set aside", uid=uid, path=str(path))

    def _mark_released(self, task: Task) -> None:
        """A full disk must not keep a pod from ending: without the mark only a prepare that is late by now goes unnoticed."""
        try:
            self._store.mark_released(task.ref, Release(task.boot_id, task.now))
        except OSError as error:
            _log.warning("release not marked", uid=task.ref.uid, why=str(error))

    def _take_holds(self, record: Record, task: Task, undo: list[Callable[[], None]]) -> None:
        uid = record.claim.uid
        for device in sorted(task.holds - record.exclusive):
            self._store.drop(device, uid)
        for device in sorted(record.exclusive):
            reason = self._take(device, record.claim, task.boot_id, undo)
            if reason is not None:
                raise Refused(reason)

    def _take(self, device: str, ref: ClaimRef, boot_id: str, undo: list[Callable[[], None]]) -> Reason | None:
        """Take one hold; why it cannot be had, or None. One that is ours already stays as it is."""
        holder: str | NoHold | None = None
        for _ in range(_ROUNDS):
            try:
                self._store.hold(device, ref.uid)
            except FileExistsError:
                holder = self._holder(device, ref)
                if isinstance(holder, NoHold):
                    return holder
                if holder == ref.uid:
                    return None
                if holder is not None and (reason := self._why_held(device, ref, holder, boot_id)) is not None:
                    return reason
            else:
                undo.append(lambda: self._store.drop(device, ref.uid))
                return None
        return Changing(ref, device, self._node, str(holder))

    def _holder(self, device: str, ref: ClaimRef) -> str | NoHold | None:
        try:
            holder = self._store.holder(device)
        except OSError:
            return NoHold(ref, str(self._store.hold_path(device)))
        return holder if holder is None or is_uid(holder) else NoHold(ref, str(self._store.hold_path(device)))

    def _why_held(self, device: str, ref: ClaimRef, holder: str, boot_id: str) -> Reason | None:
        """Why another claim's hold stands, or None after removing one that nothing stands behind.

        A hold comes just before its record; behind one without a record is either a prepare at work, which has the lock, or
        nobody (a kill, a power loss). Our own lock is held meanwhile, so the other is only tried.
        """
        found = self._store.read(holder)
        if isinstance(found, Record):
            return Held(ref, device, self._node, found.claim)
        if found is not None:
            return HeldUnreadably(ref, device, self._node, holder)
        with self._locks.if_free(holder) as lock:
            if lock is None or self._store.read(holder) is not None:
                return Changing(ref, device, self._node, holder)
            lock.disorder = not lock.in_order  # it may hold more
            if self._store.was_set_aside(holder, boot_id=boot_id) and self._store.release_of(holder) is None:
                return HeldUnreadably(ref, device, self._node, holder)
            self._store.drop(device, holder)
        _log.warning("stale hold removed", device=device, uid=holder)
        return None


def _needed(part: _T | None) -> _T:
    if part is None:
        raise AssertionError("a step that builds was given nothing to build from")
    return part


def _take_back(undo: list[Callable[[], None]]) -> bool:
    """In reverse order, up to what cannot be taken back: a record that stays keeps its devices from others, as in a release.
    Whether all was; the reason for it all is what the caller reports."""
    try:
        for back in reversed(undo):
            back()
    except (OSError, Refused) as error:
        _log.warning("rollback step failed", why=str(error))  # recovery finds what stayed
        return False
    return True
