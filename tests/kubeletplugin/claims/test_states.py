"""The table of states, by itself and as the code carries it out in any order."""

import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from api.names import ClaimRef
from api.refusals import Refused
from kubeletplugin.cdi.files import CdiFiles
from kubeletplugin.claims.acts import Acts
from kubeletplugin.claims.injection import ClaimInjection
from kubeletplugin.claims.locks import ClaimLocks
from kubeletplugin.claims.record import Record, RecordedDevice
from kubeletplugin.claims.states import TABLE, Cell, Event, NoSuchTransition, State, Step, Traces, cell, state_of
from kubeletplugin.claims.store import Store
from kubeletplugin.disk import LocalDisk
from tests.support.claims_world import DRIVER, NODE, World, a_claim, a_ref, a_result, device, prepare
from tests.support.counting_disk import BROKEN, FULL, READ_ONLY, CountingDisk, Crash

RECORD = Record(a_ref(), "boot-1", (RecordedDevice("p", "gpu-0", ("gpu",)),))
HELD = frozenset({"gpu-0"})

STATES = [
    (Traces(), State.ABSENT),
    (Traces(released=True), State.ABSENT),
    (Traces(set_aside=True), State.ABSENT),
    (Traces(holds=HELD), State.LEFTOVERS),
    (Traces(cdi_present=True), State.LEFTOVERS),
    (Traces(holds=HELD, set_aside=True), State.SET_ASIDE),
    (Traces(cdi_present=True, set_aside=True), State.SET_ASIDE),
    (Traces(holds=HELD, set_aside=True, released=True), State.LEFTOVERS),
    (Traces(RECORD), State.RECORDED),
    (Traces(RECORD, cdi_present=True, cdi_right=True), State.RECORDED),
    (Traces(RECORD, holds=HELD | {"gpu-1"}, cdi_present=True, cdi_right=True), State.RECORDED),
    (Traces(RECORD, holds=HELD), State.HELD),
    (Traces(RECORD, holds=HELD, cdi_present=True), State.HELD),
    (Traces(RECORD, holds=HELD, cdi_present=True, cdi_right=True), State.READY),
    (Traces(RECORD, holds=HELD, cdi_present=True, cdi_right=True, outdated=True), State.OUTDATED),
    (Traces(RECORD, holds=HELD, cdi_present=True, cdi_right=True, released=True), State.RELEASING),
    (Traces(damaged="is empty", holds=HELD), State.DAMAGED),
    (Traces(newer=2, holds=HELD), State.NEWER),
]


@pytest.mark.parametrize(("traces", "state"), STATES)
def test_traces_amount_to_one_state(traces: Traces, state: State):
    """What lies on disk decides, and nothing else."""
    assert state_of(traces) is state


def test_every_state_has_traces_that_amount_to_it():
    """No state of the table is only a word."""
    assert {state for _, state in STATES} == set(State)


MISSING = {(State.NEWER, Event.PREPARE)} | {
    (state, Event.ABANDON) for state in (State.ABSENT, State.LEFTOVERS, State.DAMAGED, State.SET_ASIDE, State.NEWER)
}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_missing_cell_is_an_error(state: State, event: Event):
    """Every pair has a cell, or is known to have none; asking for one of those is our mistake."""
    if (state, event) in MISSING:
        with pytest.raises(NoSuchTransition, match=f"{event.value} of a claim that is {state.value}"):
            cell(state, event)
    else:
        assert isinstance(cell(state, event), Cell)


@pytest.mark.parametrize("state", State)
def test_repeated_event_leads_nowhere_else(state: State):
    """Where an event ends, the same event ends again."""
    for event in (Event.PREPARE, Event.UNPREPARE, Event.RECOVER):
        if (state, event) not in MISSING:
            for after in TABLE[state, event].then:
                assert TABLE[after, event].then <= TABLE[state, event].then


def _look_at_all(world: World, uids: set[str]) -> dict[str, State]:
    disk = LocalDisk()
    store = Store(world.state_dir, disk)
    cdi = ClaimInjection(DRIVER, CdiFiles(world.cdi_dir, DRIVER, disk), lambda: world.content)
    acts = Acts(store, cdi, ClaimLocks(store.locks), node=NODE)
    return {uid: state_of(acts.look(uid, world.machine)) for uid in uids}


UIDS = [f"uid-{number}" for number in range(1, 5)]
# Claims that want the same few devices: alone, in pairs, with admin access, as a share.
ALLOCATIONS = {
    "uid-1": (a_result(0),),
    "uid-2": (a_result(0), a_result(1)),
    "uid-3": (a_result(1), a_result(2, admin_access=True)),
    "uid-4": (a_result(2), a_result(0, share_id="s")),
}
claims_ = st.sampled_from([a_ref(number) for number in range(1, 5)])
processes = st.sampled_from([0, 1])
operation = st.integers(1, 8)
accidents = st.sampled_from([Crash, FULL, READ_ONLY, BROKEN])


class AnyOrder(RuleBasedStateMachine):
    """Prepare, unprepare, crashes, restarts, reboots and lost files in any order, on two processes at once."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="claims-"))
        self.fsync = mock.patch.object(os, "fsync", lambda descriptor: None)
        self.fsync.start()
        self.world = World(self.root)
        self.boots = 1
        self.wanted: set[str] = set()
        """Claims that the kubelet was told are prepared, and has not released."""
        self.unsure: set[str] = set()
        """Claims whose last call ended in an accident: prepared or not, both are right."""

    @initialize()
    def start(self) -> None:
        for uid, results in ALLOCATIONS.items():
            self.world.allocate(a_claim(a_ref(int(uid[-1])), *results))
        self.processes = [self.world.claims(), self.world.claims()]
        self.processes[0].recover()

    @rule(ref=claims_, process=processes)
    def prepare(self, ref: ClaimRef, process: int) -> None:
        with suppress(Refused):
            answer = prepare(self.processes[process], ref)
            assert [item.device for item in answer] == [item.device for item in ALLOCATIONS[ref.uid]]
            self.wanted.add(ref.uid)
            self.unsure.discard(ref.uid)
            self._agree({ref.uid})

    @rule(ref=claims_, process=processes)
    def unprepare(self, ref: ClaimRef, process: int) -> None:
        self.processes[process].unprepare(ref)
        self.wanted.discard(ref.uid)
        self.unsure.discard(ref.uid)
        assert _look_at_all(self.world, {ref.uid}) == {ref.uid: State.ABSENT}

    @rule(ref=claims_, at=operation, accident=accidents, late=st.booleans(), releasing=st.booleans())
    def accident(self, ref: ClaimRef, at: int, accident: type[Crash] | int, late: bool, releasing: bool) -> None:
        """A process of its own meets an accident; when it was a kill, the kubelet has no answer."""
        disk = CountingDisk(at, accident, late=late)
        claims = self.world.claims(disk)
        before = _look_at_all(self.world, set(UIDS))
        try:
            if releasing:
                claims.unprepare(ref)
                self.wanted.discard(ref.uid)
                self.unsure.discard(ref.uid)
            else:
                prepare(claims, ref)
                self.wanted.add(ref.uid)
                self.unsure.discard(ref.uid)
        except Crash:
            self.unsure.add(ref.uid)
            self.wanted.discard(ref.uid)
        except Refused:
            if disk.happened and (releasing or before[ref.uid] is not State.ABSENT):
                self.unsure.add(ref.uid)
                self.wanted.discard(ref.uid)

    @rule(process=processes)
    def restart(self, process: int) -> None:
        self.processes[process] = self.world.claims()

    @rule(process=processes)
    def recover(self, process: int) -> None:
        self.processes[process].recover()
        assert self.world.leftovers() == []
        self._agree(set(UIDS))
        assert self.world.recorded() >= self.wanted
        assert self.world.recorded() <= self.wanted | self.unsure

    @rule()
    def lose_cdi_files(self) -> None:
        self.world.empty_cdi()

    @precondition(lambda self: self.boots < 4)
    @rule()
    def reboot(self) -> None:
        """Both processes are gone with the machine; the new ones recover before they serve."""
        self.boots += 1
        self.world.reboot(f"boot-{self.boots}")
        self.processes = [self.world.claims(), self.world.claims()]
        self.processes[0].recover()

    @rule(name=st.sampled_from(["GPU-new", "GPU-newer"]))
    def replace_a_card(self, name: str) -> None:
        machine = self.world.machine
        self.world.machine = replace(machine, gpus=(replace(machine.gpus[0], uuid=name), *machine.gpus[1:]))

    @invariant()
    def no_device_is_promised_twice(self) -> None:
        """Of the claims that the kubelet counts as prepared, no two have one device for themselves."""
        taken = [
            item.device
            for uid in self.wanted
            for item in ALLOCATIONS[uid]
            if not item.admin_access and item.share_id is None
        ]
        assert len(taken) == len(set(taken)), self.wanted

    @invariant()
    def records_never_share_a_device(self) -> None:
        store = Store(self.world.state_dir, LocalDisk())
        taken = [name for record in store.records() for name in record.exclusive]
        assert len(taken) == len(set(taken)), taken

    def _agree(self, uids: set[str]) -> None:
        """Record, holds and CDI file say the same of each claim."""
        states = _look_at_all(self.world, uids)
        assert set(states.values()) <= {State.READY, State.ABSENT}, states
        if uids == set(UIDS):
            ready = {uid for uid, state in states.items() if state is State.READY}
            assert self.world.cdi_uids() == self.world.recorded() == ready
            exclusive = {
                (item.device, uid)
                for uid in ready
                for item in ALLOCATIONS[uid]
                if not item.admin_access and item.share_id is None
            }
            assert set(self.world.holds().items()) == exclusive

    def teardown(self) -> None:
        self.fsync.stop()
        shutil.rmtree(self.root)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(
    max_examples=20, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def _make(world: World, state: State) -> None:
    """Bring claim uid-1 (device 0) into the state, on disk."""
    claims, ref = world.claims(), world.allocate(a_claim(a_ref(), 0))
    store = Store(world.state_dir, LocalDisk())
    if state is State.ABSENT:
        return
    prepare(claims, ref)
    path = store.record_path(ref.uid)
    match state:
        case State.LEFTOVERS:
            path.unlink()
        case State.RECORDED:
            (world.state_dir / "devices" / device(0)).unlink()
        case State.HELD:
            world.empty_cdi()
        case State.OUTDATED:
            world.machine = replace(world.machine, boot_id="boot-2")
        case State.RELEASING:
            disk = CountingDisk(2)  # after the mark
            with pytest.raises(Crash):
                world.claims(disk).unprepare(ref)
        case State.DAMAGED:
            path.write_bytes(b"")
        case State.SET_ASIDE:
            path.write_bytes(b"")
            claims.recover()
        case State.NEWER:
            path.write_bytes(path.read_bytes().replace(b'"format": 1', b'"format": 2'))


@pytest.mark.parametrize(("state", "event"), [key for key in TABLE if key[1] is not Event.ABANDON])
def test_code_does_what_the_table_says(world: World, state: State, event: Event):
    """From each state, each event ends where its cell says; no step but those of the cell writes anything."""
    _make(world, state)
    assert _look_at_all(world, {"uid-1"}) == {"uid-1": state}
    claims = world.claims()
    claims._restored.set()  # so that prepare meets the state itself, and not what recovery makes of it
    match event:
        case Event.PREPARE:
            prepare(claims, a_ref())
        case Event.UNPREPARE:
            claims.unprepare(a_ref())
        case Event.RECOVER:
            claims.recover()
    assert _look_at_all(world, {"uid-1"})["uid-1"] in TABLE[state, event].then
    assert world.leftovers() == []


def test_a_record_that_the_disk_does_not_let_go_keeps_its_devices(world: World):
    """A release cut off and taken up on a disk that then fails: until the record is gone, nobody else gets the device."""
    first, second = world.allocate(a_claim(a_ref(1), 0)), world.allocate(a_claim(a_ref(2), 0))
    prepare(world.claims(), first)
    other = world.claims()
    other.recover()
    for at in range(1, 5):
        disk = CountingDisk(at, BROKEN)
        with suppress(Refused):
            world.claims(disk).unprepare(first)
        assert disk.happened
        with suppress(Refused):
            prepare(other, second)
        assert len(world.recorded()) == 1, disk.log
        other.unprepare(second)
        with suppress(Refused):
            prepare(other, first)
    other.unprepare(first)
    prepare(other, second)
    assert world.recorded() == {"uid-2"}


def test_record_comes_after_holds_and_before_the_cdi_file():
    """What a runtime can see is always known to us; who is recorded has always been let in."""
    for (_, event), the_cell in TABLE.items():
        steps = the_cell.steps
        order = [step for step in (Step.TAKE_HOLDS, Step.WRITE_RECORD, Step.WRITE_CDI) if step in steps]
        assert [step for step in steps if step in order] == order, event
        if event in {Event.UNPREPARE, Event.ABANDON}:
            assert Step.REMOVE_CDI not in steps or steps[-1] is Step.DROP_HOLDS, event
