"""What the holders of a device are told when it falls ill, and what a claim for a lost device is refused with."""

from dataclasses import replace

import pytest

from api.health import LOST, MEMORY_PENDING, OFF_THE_BUS, REMAP_PENDING, Ailment, known, of_xid
from kubeletplugin.claims.notices import DeviceAiling, DeviceLost
from kubeletplugin.claims.refusals import LostDevice
from tests.support.claims_world import a_claim, a_ref, device, prepare, refusal

NOW = "2026-11-30T00:30:00Z"
BEFORE = "2026-11-29T00:00:00Z"


def off(since=NOW):
    return known(LOST, OFF_THE_BUS, since)


def xid(number, since=NOW) -> Ailment:
    found = of_xid(number, since)
    assert found is not None
    return found


@pytest.fixture
def held(world):
    """One claim holds the first GPU; its process is `held.process`."""
    world.process = world.claims()
    prepare(world.process, world.allocate(a_claim(a_ref(1), 0)))
    return world


def ail(world, *ailments):
    first, *others = world.machine.gpus
    world.machine = replace(world.machine, gpus=(replace(first, ailments=ailments), *others))


def told(world, claims=None):
    before = len(world.told)
    (claims or world.process).restore()
    return [reason for _, reason in world.told[before:]]


def test_a_lost_device_is_told_once_for_each_loss(held):
    """It is still in the machine, and lost all the same; the CDI file stays as it is."""
    files = held.cdi_uids()
    ail(held, off())
    (reason,) = told(held)
    assert reason == DeviceLost(a_ref(1), "node-a", (device(0),))
    assert told(held) == []
    first, *others = held.machine.gpus
    held.machine = replace(held.machine, gpus=tuple(others))
    assert told(held) == [], "gone from the machine is no news of a lost device"
    held.machine = replace(held.machine, gpus=(replace(first, ailments=()), *others))
    assert told(held) == []
    ail(held, off())
    assert len(told(held)) == 1
    assert held.cdi_uids() == files


def test_a_new_process_does_not_tell_what_the_one_before_it_told(held):
    """What that knew of is no news; what began since is."""
    old = {("GPU-65", off(BEFORE)), ("GPU-65", xid(48, BEFORE))}
    held.told_before = lambda uuid, ailment: (uuid, ailment) in old
    ail(held, off(BEFORE), xid(48, BEFORE))
    assert told(held, held.claims()) == []
    ail(held, off(NOW), xid(48, BEFORE))
    assert [type(reason) for reason in told(held, held.claims())] == [DeviceLost]


def test_what_makes_a_device_unfit_is_told_by_its_kind(held):
    """Each once; what is only to be known is not told to users."""
    ail(held, xid(48), known(MEMORY_PENDING, REMAP_PENDING, NOW))
    (reason,) = told(held)
    assert isinstance(reason, DeviceAiling)
    assert reason.what == (
        f"claim team-a/train-1: {device(0)} on node-a is ailing while the claim is prepared: "
        "Xid 48: an uncorrectable memory error"
    )
    assert reason.remedy.startswith("look at what the pod computes; for another device delete the pod and the claim.")
    ail(held, xid(48), xid(119))
    (reason,) = told(held)
    assert "Xid 119" in reason.what


def test_a_lost_device_is_refused_with_since_when_and_why(world):
    """Nothing is written for it; the other devices are not concerned."""
    ail(world, off())
    claims = world.claims()
    reason = refusal(lambda: prepare(claims, world.allocate(a_claim(a_ref(1), 0))))
    assert isinstance(reason, LostDevice)
    assert reason.what == (
        f"claim team-a/train-1: {device(0)} on node-a is lost since {NOW}: the GPU has fallen off the bus"
    )
    assert reason.remedy.startswith(
        "delete the pod and the claim, so that another device is allocated. On node-a: look at"
    )
    assert world.is_clear()
    prepare(claims, world.allocate(a_claim(a_ref(2), 1)))


def test_an_ailing_device_is_prepared_for_who_tolerates_it(world):
    """The scheduler has let the claim have it: somebody wants to look at the GPU as it is."""
    ail(world, xid(48))
    prepare(world.claims(), world.allocate(a_claim(a_ref(1), 0)))


def test_a_claim_on_a_lost_device_is_released_like_any_other(held):
    """Case J5: its removal from the pool would have broken that."""
    ail(held, off())
    held.process.unprepare(a_ref(1))
    assert held.is_clear()
