"""Finding the way back: after a crash, a reboot, a lost file or a call that never came.

`restore` compares records, holds, CDI files and hardware, claim by claim, each under its own lock and none waited for.
`compare` asks the API about recorded claims, which may take long, so it is for a thread of its own. Neither takes anything
from containers that may be running.
"""

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from api.claims import Claim
from api.hardware import Machine
from api.health import Ailment
from api.names import ClaimRef
from api.refusals import Reason, Refused
from kubeletplugin.claims.acts import Acts, Task
from kubeletplugin.claims.bedside import Bedside
from kubeletplugin.claims.checks import why_abandoned
from kubeletplugin.claims.injection import CdiWriter
from kubeletplugin.claims.locks import ClaimLocks, Lock
from kubeletplugin.claims.notices import RecordDamaged, ReleasedUnasked
from kubeletplugin.claims.record import Record, is_uid, refreshed, salvaged_ref
from kubeletplugin.claims.states import Event, State, Step, cell, state_of
from kubeletplugin.claims.store import Store
from kubeletplugin.disk import content_of

_log = structlog.get_logger(__name__)

RECHECK_SECONDS = 600.0
"""Between two questions to the API about recorded claims. A claim must be gone both times: its pod's containers may still be
running after a forced deletion, and the kubelet's own release comes within minutes (Case H3)."""
_PASSES = 4
"""No state needs more: damaged, set aside, left over, absent."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a pass found and did."""

    records: int = 0
    restored: int = 0
    """Claims whose holds, record or CDI file were made anew."""
    removed: int = 0
    """Traces without a record, or of a release that was cut off."""
    set_aside: int = 0
    lost: int = 0
    """Claims with a device that is not there any more."""
    skipped: int = 0
    """Claims that others are at work on, or that could not be mended now."""
    abandoned: int = 0
    """Claims that the API no longer knows, released by us."""

    @property
    def sentence(self) -> str:
        """What an operator wants to know of it."""
        parts = {
            "restored": self.restored,
            "cleared away": self.removed,
            "set aside": self.set_aside,
            "with lost devices": self.lost,
            "left for later": self.skipped,
            "released because the API knows them no more": self.abandoned,
        }
        said = ", ".join(f"{count} {what}" for what, count in parts.items() if count)
        return f"{self.records} claims recorded: {said or 'all as they should be'}"


class Recovery:
    """Mends what differs. Remembers only what may be forgotten: since when the API misses a claim, and what has been said."""

    def __init__(
        self,
        *,
        driver: str,
        node: str,
        store: Store,
        cdi: CdiWriter,
        locks: ClaimLocks,
        acts: Acts,
        machine: Callable[[], Machine | None],
        fetch: Callable[[ClaimRef], Claim | None],
        tell: Callable[[ClaimRef, Reason, Event], None],
        since_boot: Callable[[], float],
        told_before: Callable[[str, Ailment], bool] = lambda *_: False,
    ) -> None:
        """`told_before`: see `Bedside`."""
        self._driver, self._node = driver, node
        self._store, self._cdi, self._locks, self._acts = store, cdi, locks, acts
        self._machine, self._fetch, self._tell, self._since_boot = machine, fetch, tell, since_boot
        self._missed: dict[Record, float] = {}
        self._compared_at: float | None = None
        self._unanswered = ""
        self._said: set[tuple[str, str]] = set()
        self._bedside = Bedside(node, tell, told_before)

    def restore(self) -> Recovered:
        """Bring every claim's traces to one of the states that last. Never raises for one claim: it is left, and counted."""
        machine = self._machine()
        found: Counter[str] = Counter()
        alone, temporaries = self._alone(), self._store.temporaries()
        uids = self._uids()
        self._said = {(uid, why) for uid, why in tuple(self._said) if uid in uids or not uid}
        self._bedside.keep(uids)
        for uid in sorted(uids):
            try:
                with self._locks.if_free(uid) as lock:
                    if lock is not None:
                        self._store.remove_temporaries(temporaries.get(uid, ()))
                        self._restore(uid, machine, found, lock)
                    else:
                        found["skipped"] += 1
            except (OSError, Refused) as error:
                found["skipped"] += 1
                if self._is_new(uid, str(error)):
                    _log.warning("claim not restored", uid=uid, why=str(error))
        try:
            self._cdi.sweep()
        except (OSError, Refused) as error:
            if self._is_new("", str(error)):
                _log.warning("CDI directory not swept", why=str(error))
        self._locks.all_in_order(None if found["skipped"] else alone)
        return Recovered(records=len(self._store.recorded()), **found)

    def compare(self) -> int:
        """Release what the API has missed at two questions in a row, RECHECK_SECONDS apart; returns how many.

        Where the API does not answer, everything stays as it is, and the rest is not asked: each question could take its
        time-out. The next round begins behind that claim, so that one which is never answered keeps none from its turn.
        A question is asked at most every RECHECK_SECONDS.
        """
        now = self._since_boot()
        if self._compared_at is not None and now - self._compared_at < RECHECK_SECONDS:
            return 0
        self._compared_at = now
        before, self._unanswered = self._unanswered, ""
        records = sorted(self._store.records(), key=lambda record: (record.claim.uid <= before, record.claim.uid))
        known = frozenset(records)
        self._missed = {record: since for record, since in self._missed.items() if record in known}
        count = 0
        for record in records:
            try:
                why = why_abandoned(record, self._fetch(record.claim), self._driver)
            except Refused as refused:
                _log.info("claims not compared", first=str(record.claim), why=refused.reason.what)
                self._unanswered = record.claim.uid
                break
            if why is None or (record in self._missed and self._abandon(record, why)):
                self._missed.pop(record, None)
                count += why is not None
            else:
                self._missed.setdefault(record, now)
        return count

    def release(self, ref: ClaimRef, event: Event, lock: Lock) -> State:
        """Unprepare, under the claim's lock; returns what it was. Asks neither API nor hardware."""
        traces = self._acts.look(ref.uid, None, in_order=lock.in_order)
        state = state_of(traces)
        machine = self._machine()
        task = Task(ref, machine.boot_id if machine is not None else "", self._since_boot(), lock, traces.holds)
        self._acts.carry_out(cell(state, event).steps, task)
        return state

    def _alone(self) -> int | None:
        try:
            return self._locks.alone()
        except OSError:
            return None  # what is the matter is said for each claim

    def _uids(self) -> set[str]:
        return {uid for uid in self._store.uids() | set(self._cdi.uids()) if is_uid(uid)}

    def _restore(self, uid: str, machine: Machine | None, found: Counter[str], lock: Lock) -> None:
        boot_id = machine.boot_id if machine is not None else ""
        done: set[Step] = set()
        lost = False
        for _ in range(_PASSES):
            traces = self._acts.look(uid, machine)
            state = state_of(traces)
            steps = cell(state, Event.RECOVER).steps
            record, ref = traces.record, ClaimRef("", "", uid)
            if record is not None:
                ref = record.claim
                lost = self._bedside.visit(record, machine) or lost
                if machine is None or lost:  # what cannot be described now keeps the file it has
                    steps = tuple(
                        step for step in steps if step is not Step.WRITE_CDI and step is not Step.WRITE_RECORD
                    )
                else:
                    record = refreshed(record, machine)
            if not steps or done.issuperset(steps):
                break
            if traces.damaged is not None:
                self._say_damaged(uid, traces.damaged)
            task = Task(ref, boot_id, self._since_boot(), lock, traces.holds, record, machine)
            self._acts.carry_out(steps, task)
            done |= set(steps)
        self._forget_old_release(uid, boot_id)
        found["lost"] += lost
        found["set_aside"] += Step.SET_RECORD_ASIDE in done
        found["restored"] += bool(done & {Step.WRITE_CDI, Step.TAKE_HOLDS})
        found["removed"] += Step.REMOVE_CDI in done

    def _forget_old_release(self, uid: str, boot_id: str) -> None:
        release = self._store.release_of(uid)
        if release is not None and release.is_over(self._since_boot(), boot_id=boot_id):
            self._store.forget_release(uid)

    def _abandon(self, record: Record, why: str) -> bool:
        """Release a claim that only we still know; False when somebody is at work on it, or the disk does not take it."""
        ref = record.claim
        devices = tuple(dict.fromkeys(item.device for item in record.devices))
        try:
            with self._locks.if_free(ref.uid) as lock:
                if lock is None:
                    return False
                if self._store.read(ref.uid) != record:
                    lock.disorder = not lock.in_order  # nothing was looked at
                    return False
                self.release(ref, Event.ABANDON, lock)
        except OSError as error:
            _log.warning("claim not released unasked", claim=str(ref), uid=ref.uid, why=str(error))
            return False
        reason = ReleasedUnasked(ref, self._node, devices, why)
        _log.warning("claim released unasked", claim=str(ref), uid=ref.uid, devices=devices, why=why)
        self._tell(ref, reason, Event.ABANDON)
        return True

    def _say_damaged(self, uid: str, problem: str) -> None:
        """Tell the claim's owner, where the damaged record still names the claim; the log has it in any case."""
        path = self._store.record_path(uid)
        _log.error("damaged record found", uid=uid, path=str(path), problem=problem)
        with contextlib.suppress(OSError):
            ref = salvaged_ref(content_of(path), uid=uid)
            if ref is not None:
                self._tell(ref, RecordDamaged(ref, self._node, str(self._store.quarantine), problem), Event.RECOVER)

    def _is_new(self, uid: str, why: str) -> bool:
        """Whether this is said for the first time: a condition that lasts is told when it begins."""
        if (uid, why) in self._said:
            return False
        self._said.add((uid, why))
        return True
