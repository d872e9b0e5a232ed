"""Claims as the kubelet's sockets see them: prepare, unprepare, and finding the way back.

The shell only: what may be prepared is `checks`, what follows what is `states`, how it is kept is `store`. All coordination
is on disk, since two plugin processes serve at once in a rolling update (Case H4).
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

import structlog

from api.claims import Claim, PodRef, PreparedDevice
from api.hardware import Machine
from api.health import Ailment
from api.names import ClaimRef, pool_name
from api.refusals import Reason, Refused
from api.timestamps import time_text, utc_now
from kubeletplugin.claims.acts import Acts, Task
from kubeletplugin.claims.checks import why_not_again, why_not_devices, why_not_parameters, why_not_this_claim
from kubeletplugin.claims.injection import CdiWriter
from kubeletplugin.claims.locks import ClaimLocks, Lock, LockTimeout
from kubeletplugin.claims.record import Record, is_uid, record_of
from kubeletplugin.claims.recovery import Recovered, Recovery
from kubeletplugin.claims.refusals import (
    PASSING,
    BadUid,
    Busy,
    Cancelled,
    Defect,
    DiskTrouble,
    Gone,
    Late,
    NewerRecord,
    NoMachine,
    Silent,
)
from kubeletplugin.claims.states import Event, State, cell, state_of
from kubeletplugin.claims.store import Store
from kubeletplugin.disk import Disk

_log = structlog.get_logger(__name__)


PODS_TOLD = 16
"""So many of a claim's pods are told; up to 256 may use it, and each would get Events of its own."""


def seconds_since_boot() -> float:
    """The same in every process of the machine, and never set back: what tells a late call from a new one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Tell(Protocol):
    """Hands a reason to users: Events on the claim and on the pods that may use it. Returns at once and never raises."""

    def __call__(self, ref: ClaimRef, reason: Reason, event: Event, pods: tuple[PodRef, ...] = ()) -> None:
        """`event` is what was being done."""


@dataclass(slots=True)
class _Call:
    """One prepare while it goes on."""

    ref: ClaimRef
    arrival: float
    cancelled: Callable[[], bool]
    pods: tuple[PodRef, ...] = ()
    """Who may use the claim; none before it was fetched."""


class Claims:
    """All claims of one driver on one node. Every method may be called from any thread, and repeated."""

    def __init__(
        self,
        *,
        driver: str,
        node: str,
        state_dir: Path,
        disk: Disk,
        cdi: CdiWriter,
        machine: Callable[[], Machine | None],
        why_no_machine: Callable[[], str],
        fetch: Callable[[ClaimRef], Claim | None],
        tell: Tell,
        done: Callable[[Event, str | None, float], None] = lambda *_: None,
        since_boot: Callable[[], float] = seconds_since_boot,
        wall: Callable[[], datetime] = utc_now,
        locks: ClaimLocks | None = None,
        told_before: Callable[[str, Ailment], bool] = lambda *_: False,
    ) -> None:
        """`fetch` reads the claim of this namespace and name from the API server, now: None where there is none, Refused where
        it does not answer. `done` hears of each call as it ends: the name of the reason that it was refused for, None where it
        was not, and its seconds.
        `why_no_machine` completes the sentence "the GPUs are not known yet: …". `told_before`: see `bedside`.

        Makes the directories below `state_dir`; Refused, naming the path, where that is impossible.
        """
        self._driver, self._node, self._pool = driver, node, pool_name(node, driver)
        self._machine, self._why_no_machine = machine, why_no_machine
        self._fetch, self._tell, self._done = fetch, tell, done
        self._since_boot, self._wall = since_boot, wall
        self._store = Store(state_dir, disk)
        self._store.make_rooms()
        self._cdi = cdi
        self._locks = locks or ClaimLocks(self._store.locks)
        self._acts = Acts(self._store, cdi, self._locks, node=node)
        self._recovery = Recovery(
            driver=driver,
            node=node,
            store=self._store,
            cdi=cdi,
            locks=self._locks,
            acts=self._acts,
            machine=machine,
            fetch=fetch,
            tell=tell,
            since_boot=since_boot,
            told_before=told_before,
        )
        self._restored = threading.Event()

    def prepare(self, ref: ClaimRef, *, cancelled: Callable[[], bool]) -> tuple[PreparedDevice, ...]:
        """Give the claim its devices: record, holds and CDI file are on disk when this returns.

        The same answer each time it is repeated (Case G4). Refused with a reason otherwise, which the user has been told;
        then the disk is as it was. `cancelled` says whether the caller has gone.
        """
        call = _Call(ref, self._since_boot(), cancelled)
        log = _log.bind(claim=str(ref), uid=ref.uid, node=self._node)
        try:
            record, state = self._prepare(call)
        except Refused as refused:
            self._say_refused(log, Event.PREPARE, call, refused.reason)
            raise
        except Exception as defect:
            # Logged by whoever answers the call, with where it happened.
            self._tell_of(Event.PREPARE, call, Defect(ref, self._node, f"{type(defect).__name__}: {defect}"))
            raise
        seconds = self._since_boot() - call.arrival
        self._done(Event.PREPARE, None, seconds)
        log.info(
            "claim prepared",
            devices=[item.device for item in record.devices],
            pods=[pod.name for pod in call.pods],
            was=state.value,
            seconds=round(seconds, 4),
        )
        return self._answer(record)

    def unprepare(self, ref: ClaimRef) -> None:
        """Take the devices back. Needs neither API server nor hardware; a claim that is not known succeeds (Case H1).

        Refused only where the disk or another call for this claim stands in the way; the kubelet repeats it without limit.
        """
        call = _Call(ref, self._since_boot(), _nobody_gone)
        log = _log.bind(claim=str(ref), uid=ref.uid, node=self._node)
        if not is_uid(ref.uid):
            log.warning("claim of impossible UID unprepared")  # it was never prepared
            return
        try:
            with self._at_work_on(ref, call.cancelled) as lock:
                state = self._recovery.release(ref, Event.UNPREPARE, lock)
        except Refused as refused:
            self._say_refused(log, Event.UNPREPARE, call, refused.reason)
            raise
        except Exception as defect:
            self._tell_of(Event.UNPREPARE, call, Defect(ref, self._node, f"{type(defect).__name__}: {defect}"))
            raise
        seconds = self._since_boot() - call.arrival
        self._done(Event.UNPREPARE, None, seconds)
        log.info("claim unprepared", was=state.value, seconds=round(seconds, 4))

    def records(self) -> tuple[Record, ...]:
        """All claims that are prepared here, from the disk, by UID: one read for each."""
        return tuple(self._store.records())

    def recover(self) -> Recovered:
        """`restore` and `compare`, the one after the other."""
        return replace(self.restore(), abandoned=self.compare())

    def restore(self) -> Recovered:
        """Compare record, holds, CDI files and hardware, and mend what differs: at start before the sockets are there, by
        timer, and when the hardware changed.

        Asks no API server, so that one which is away keeps no node from starting. Never raises for a single claim; Refused
        where the state directory itself cannot be had.
        """
        self._store.make_rooms()
        outcome = self._recovery.restore()
        self._restored.set()
        return outcome

    def compare(self) -> int:
        """Release what the API knows no more, by timer; returns how many. It may take as long as the API server does, and is
        for one thread at a time; `restore` may run beside it."""
        return self._recovery.compare()

    def _prepare(self, call: _Call) -> tuple[Record, State]:
        ref = call.ref
        if not is_uid(ref.uid):
            raise Refused(BadUid(ref.uid))
        if not self._restored.is_set():  # links do not survive a power loss; nobody is let in before they are back
            self.restore()
        claim = self._live(call)
        with self._at_work_on(ref, call.cancelled) as lock:
            return self._prepare_locked(claim, call, lock)

    def _live(self, call: _Call) -> Claim:
        """The claim as the API has it now. Asked before the lock is taken: a release must never wait for an API server."""
        ref = call.ref
        try:
            claim = self._fetch(ref)
        except Refused as refused:
            raise Refused(Silent(ref, refused.reason)) from refused
        if claim is not None and claim.ref == ref:
            call.pods = claim.pods[:PODS_TOLD]
        reason = why_not_this_claim(ref, claim)
        if claim is None or reason is not None:
            raise Refused(reason or Gone(ref))
        _refuse(why_not_parameters(claim, self._driver))
        return claim

    def _prepare_locked(self, claim: Claim, call: _Call, lock: Lock) -> tuple[Record, State]:
        ref, machine = claim.ref, self._machine()
        boot_id = machine.boot_id if machine is not None else ""
        traces = self._acts.look(ref.uid, machine, in_order=lock.in_order)
        state = state_of(traces)
        if traces.newer is not None:
            raise Refused(NewerRecord(ref, self._node, traces.newer))
        before = None if state is State.RELEASING else traces.record
        record = record_of(claim, self._driver, machine, prepared_at=time_text(self._wall()))
        _refuse(why_not_again(record, before, node=self._node))
        if machine is None:
            if state is State.READY and before is not None:
                return before, state  # what is complete is answered, whatever the driver is doing (Case G12)
            raise Refused(NoMachine(ref, self._node, self._why_no_machine()))
        _refuse(why_not_devices(record, machine, node=self._node, pool=self._pool))
        release = self._store.release_of(ref.uid)
        if release is not None and release.is_after(call.arrival, boot_id=boot_id):
            raise Refused(Late(ref))
        if call.cancelled():
            raise Refused(Cancelled(ref))
        if not record.devices:
            lock.disorder = not lock.in_order  # nothing is put in order here
            return record, state  # nothing of it is ours
        if before is not None:
            record = replace(record, prepared_at=before.prepared_at)
        task = Task(
            ref,
            boot_id,
            self._since_boot(),
            lock,
            traces.holds,
            record,
            machine,
            undo=before is None,
            keep_cdi=traces.cdi_present and state in {State.DAMAGED, State.SET_ASIDE},
        )
        self._acts.carry_out(cell(state, Event.PREPARE).steps, task)
        return record, state

    @contextmanager
    def _at_work_on(self, ref: ClaimRef, cancelled: Callable[[], bool]) -> Iterator[Lock]:
        """Under the claim's lock, with the disk's trouble told as a reason."""
        try:
            with self._locks.held(ref.uid, cancelled=cancelled) as lock:
                yield lock
        except LockTimeout:
            raise Refused(
                Cancelled(ref) if cancelled() else Busy(ref, self._node, self._locks.patience_seconds)
            ) from None
        except OSError as error:
            path = str(error.filename2 or error.filename or self._store.root)
            raise Refused(DiskTrouble(ref, self._node, path, error.strerror or str(error))) from error

    def _answer(self, record: Record) -> tuple[PreparedDevice, ...]:
        """One entry for each device and share. Request names without the alternative chosen: the kubelet knows only those."""
        return tuple(
            PreparedDevice(
                requests=item.requests,
                pool=item.pool,
                device=item.device,
                cdi_ids=self._cdi.ids(record.claim.uid, item.device, item.share_id),
                share_id=item.share_id,
            )
            for item in record.devices
        )

    def _say_refused(
        self, log: structlog.typing.FilteringBoundLogger, event: Event, call: _Call, reason: Reason
    ) -> None:
        said = "release refused" if event is Event.UNPREPARE else "claim refused"
        log.warning(
            said,
            why=reason.what,
            remedy=reason.remedy,
            kind=type(reason).__name__,
            pods=[pod.name for pod in call.pods],
            seconds=round(self._since_boot() - call.arrival, 4),
        )
        self._tell_of(event, call, reason)

    def _tell_of(self, event: Event, call: _Call, reason: Reason) -> None:
        self._done(event, type(reason).__name__, self._since_boot() - call.arrival)
        if not isinstance(reason, PASSING):
            self._tell(call.ref, reason, event, call.pods)


def _refuse(reason: Reason | None) -> None:
    if reason is not None:
        raise Refused(reason)


def _nobody_gone() -> bool:
    """A release is carried out even when the kubelet no longer waits for the answer: it wants it all the same."""
    return False
