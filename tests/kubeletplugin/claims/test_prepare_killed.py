"""Killed at the n-th disk operation, for all n until it survives; then each way the story can go on (Case G10)."""

from collections.abc import Callable

import pytest

from api.names import ClaimRef
from kubeletplugin.claims.prepare import Claims
from tests.support.claims_world import World, a_claim, a_ref, a_result, device, prepare
from tests.support.counting_disk import CountingDisk, Crash

RESULTS = (a_result(0, request="a"), a_result(1, request="b"), a_result(2, request="c", admin_access=True))
UNTIL = 30


def _killed_at(world: World, n: int, late: bool, call: Callable[[Claims], object]) -> bool:
    """Let a process do it and be killed at operation n. False when it came through."""
    try:
        call(world.claims(CountingDisk(n, Crash, late=late)))
    except Crash:
        return True
    return False


def _each(tmp_path, late: bool, prepared_before: bool, call: Callable[[Claims, ClaimRef], object], go_on) -> int:
    """The story for every n, each in a fresh world; returns how many operations the call has."""
    for n in range(1, UNTIL):
        root = tmp_path / str(n)
        root.mkdir()
        world = World(root)
        ref = world.allocate(a_claim(a_ref(1), *RESULTS))
        if prepared_before:
            prepare(world.claims(), ref)
        killed = _killed_at(world, n, late, lambda claims, ref=ref: call(claims, ref))
        go_on(world, ref)
        if not killed:
            return n - 1
    raise AssertionError(f"still killed at operation {UNTIL}")


def _prepares(claims: Claims, ref: ClaimRef) -> object:
    return prepare(claims, ref)


def _releases(claims: Claims, ref: ClaimRef) -> object:
    return claims.unprepare(ref)


def _is_prepared(world: World) -> None:
    assert world.recorded() == world.cdi_uids() == {"uid-1"}
    assert world.holds() == {device(0): "uid-1", device(1): "uid-1"}
    assert world.leftovers() == []


late = pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
recovering = pytest.mark.parametrize("recovering", [False, True], ids=["at-once", "after-recovery"])


@late
@recovering
def test_prepare_killed_then_repeated(tmp_path, late, recovering):
    """(a) The kubelet asks again: prepared, exactly once."""

    def go_on(world: World, ref: ClaimRef) -> None:
        claims = world.claims()
        if recovering:
            claims.recover()
        prepare(claims, ref)
        claims.recover()
        _is_prepared(world)

    assert _each(tmp_path, late, False, _prepares, go_on) == 4  # two holds, the record, the CDI file


@late
@recovering
def test_prepare_killed_then_released(tmp_path, late, recovering):
    """(b) The pod is deleted meanwhile: nothing is left."""

    def go_on(world: World, ref: ClaimRef) -> None:
        claims = world.claims()
        if recovering:
            claims.recover()
        claims.unprepare(ref)
        claims.recover()
        assert world.is_clear()

    _each(tmp_path, late, False, _prepares, go_on)


@late
def test_prepare_killed_and_the_claim_deleted(tmp_path, late):
    """(c) The claim is deleted and nobody calls: recovery ends with nothing, though not at once."""

    def go_on(world: World, ref: ClaimRef) -> None:
        world.delete(ref)
        claims = world.claims()
        claims.recover()
        world.now += 601
        claims.recover()
        assert world.is_clear()

    _each(tmp_path, late, False, _prepares, go_on)


@late
def test_prepare_killed_leaves_all_or_nothing_after_recovery(tmp_path, late):
    """Record, holds and CDI file agree as soon as the plugin has recovered."""

    def go_on(world: World, ref: ClaimRef) -> None:
        world.claims().recover()
        if not world.is_clear():
            _is_prepared(world)

    _each(tmp_path, late, False, _prepares, go_on)


@late
def test_prepare_killed_does_not_keep_the_device_from_others(tmp_path, late):
    """Another claim gets the devices once the first is released, or at once where the first never was recorded."""

    def go_on(world: World, ref: ClaimRef) -> None:
        recorded = bool(world.recorded())
        claims, other = world.claims(), world.allocate(a_claim(a_ref(2), 0, 1))
        if recorded:
            claims.unprepare(ref)
        prepare(claims, other)
        assert world.holds() == {device(0): "uid-2", device(1): "uid-2"}

    _each(tmp_path, late, False, _prepares, go_on)


@late
def test_unprepare_killed_then_repeated(tmp_path, late):
    """The kubelet repeats the release without limit: nothing is left."""

    def go_on(world: World, ref: ClaimRef) -> None:
        world.claims().unprepare(ref)
        assert world.is_clear() or world.leftovers()
        world.claims().recover()
        assert world.is_clear()

    assert _each(tmp_path, late, True, _releases, go_on) == 5  # mark, CDI file, two holds, record


@late
def test_unprepare_killed_is_finished_by_recovery(tmp_path, late):
    """A release that has been marked goes to its end; one that was not has changed nothing."""

    def go_on(world: World, ref: ClaimRef) -> None:
        marked = bool(list((world.state_dir / "released").glob("*.json")))
        world.claims().recover()
        if marked:
            assert world.is_clear()
        else:
            _is_prepared(world)

    _each(tmp_path, late, True, _releases, go_on)


@late
def test_unprepare_killed_then_prepared_again(tmp_path, late):
    """A new pod of the same claim, after a release that was cut off anywhere."""

    def go_on(world: World, ref: ClaimRef) -> None:
        claims = world.claims()
        claims._restored.set()  # meet the cut-off release as it is
        prepare(claims, ref)
        claims.recover()
        _is_prepared(world)

    _each(tmp_path, late, True, _releases, go_on)


@late
def test_recovery_killed_then_repeated(tmp_path, late):
    """Recovery itself may be killed anywhere: here after a reboot."""

    def recover(claims: Claims, ref: ClaimRef) -> object:
        return claims.recover()

    for n in range(1, UNTIL):
        root = tmp_path / f"r{n}"
        root.mkdir()
        world = World(root)
        prepare(world.claims(), world.allocate(a_claim(a_ref(1), *RESULTS)))
        world.reboot("boot-2")
        killed = _killed_at(world, n, late, lambda claims: recover(claims, a_ref(1)))
        world.claims().recover()
        _is_prepared(world)
        if not killed:
            assert n > 4
            return
    raise AssertionError("never survived")
