"""The disk refuses the n-th operation, for all n: rolled back in reverse, told, and retried with success (Case G9)."""

import os

import pytest
from structlog.testing import capture_logs

from api.claims import Claim
from tests.support.claims_world import World, a_claim, a_ref, a_result, device, prepare, refusal
from tests.support.counting_disk import BROKEN, FULL, READ_ONLY, CountingDisk

RESULTS = (a_result(0, request="a"), a_result(1, request="b"))
OPERATIONS = range(1, 5)  # two holds, the record, the CDI file

faults = pytest.mark.parametrize("fault", [FULL, READ_ONLY, BROKEN], ids=["full", "read-only", "broken"])
late = pytest.mark.parametrize("late", [False, True], ids=["before", "after"])


def _a_claim(world: World) -> Claim:
    claim = a_claim(a_ref(), *RESULTS)
    world.allocate(claim)
    return claim


@faults
@pytest.mark.parametrize("n", OPERATIONS)
def test_failed_prepare_leaves_nothing_and_succeeds_when_repeated(world, fault, n):
    """Whatever the disk refuses, what was done before is taken back."""
    ref = _a_claim(world).ref
    reason = refusal(lambda: prepare(world.claims(CountingDisk(n, fault)), ref))
    assert os.strerror(fault) in reason.what
    assert world.is_clear()
    prepare(world.claims(), ref)
    assert world.recorded() == world.cdi_uids() == {"uid-1"}


@pytest.mark.parametrize("n", [3, 4])
def test_write_that_failed_after_it_happened_is_taken_back(world, n):
    """A rename that is done while syncing its directory fails: the file is there, and must go."""
    refusal(lambda: prepare(world.claims(CountingDisk(n, BROKEN, late=True)), _a_claim(world).ref))
    assert world.is_clear()


def test_taking_back_is_in_reverse_order(world):
    """The CDI file first, the hold that was taken first last."""
    disk = CountingDisk(4, FULL, late=True)
    refusal(lambda: prepare(world.claims(disk), _a_claim(world).ref))
    assert disk.log == [
        f"link devices/{device(0)}",
        f"link devices/{device(1)}",
        "write claims/uid-1.json",
        "write cdi/gpu.lanewise.dev-claim_uid-1.json",
        "unlink cdi/gpu.lanewise.dev-claim_uid-1.json",
        "remove claims/uid-1.json",
        f"unlink devices/{device(1)}",
        f"unlink devices/{device(0)}",
    ]


def test_a_record_that_cannot_be_taken_back_keeps_its_devices_and_the_first_error_is_told(world):
    """No second record of them comes beside it, and the user reads of the CDI file."""

    class Stubborn(CountingDisk):
        def remove(self, path):
            self.log.append(f"remove {path.name}")
            raise OSError(READ_ONLY, os.strerror(READ_ONLY), str(path))

    disk = Stubborn(4, FULL)
    with capture_logs() as logs:
        reason = refusal(lambda: prepare(world.claims(disk), _a_claim(world).ref))
    assert "No space left on device" in reason.what
    assert world.holds() == {device(0): "uid-1", device(1): "uid-1"}
    other = world.allocate(a_claim(a_ref(2), 0))
    assert "still held" in refusal(lambda: prepare(world.claims(), other)).what
    assert [entry["event"] for entry in logs if entry["event"] != "claim refused"] == ["rollback step failed"]
    prepare(world.claims(), a_ref())
    assert world.holds() == {device(0): "uid-1", device(1): "uid-1"}


@pytest.mark.parametrize("n", range(1, 6))
@faults
def test_unprepare_that_failed_succeeds_when_repeated(world, n, fault):
    """The kubelet repeats it; a full disk alone never keeps a pod from ending, for a release needs no room."""
    ref = _a_claim(world).ref
    prepare(world.claims(), ref)
    claims = world.claims(CountingDisk(n, fault))
    if n == 1:  # the mark of the release, which is done without
        claims.unprepare(ref)
    else:
        assert os.strerror(fault) in refusal(lambda: claims.unprepare(ref)).what
        world.claims().unprepare(ref)
    assert world.is_clear()


def test_disk_mounted_read_only_refuses_until_it_is_mended(world):
    """Nothing can be done, nothing breaks, and all is well afterwards."""
    ref = _a_claim(world).ref
    prepare(world.claims(), ref)
    broken = world.claims(CountingDisk(1, READ_ONLY, lasting=True))
    prepare(broken, ref)  # it is complete: nothing has to be written
    refusal(lambda: broken.unprepare(ref))
    assert broken.recover().records == 1
    world.claims().unprepare(ref)
    assert world.is_clear()


@pytest.fixture
def no_inodes(monkeypatch):
    """A file system without a free inode: what is there can be opened, nothing can be made."""
    real = os.open

    def opened(path, flags, mode=0o777, *, dir_fd=None):
        if flags & os.O_CREAT and not os.path.lexists(path):
            raise OSError(FULL, os.strerror(FULL), str(path))
        return real(path, flags, mode, dir_fd=dir_fd)

    return lambda: monkeypatch.setattr(os, "open", opened)


def test_disk_without_inodes_keeps_no_pod_from_ending(world, no_inodes):
    """A release needs no new file, and that of a claim that is not known as little (Case H1)."""
    ref = _a_claim(world).ref
    prepare(world.claims(), ref)
    claims = world.claims()
    no_inodes()
    claims.unprepare(a_ref(2))
    claims.unprepare(ref)
    assert world.is_clear()


def test_disk_without_inodes_refuses_a_prepare_by_its_name(world, no_inodes):
    """It would have no record either, and must not keep all other claims waiting meanwhile."""
    ref = _a_claim(world).ref
    claims = world.claims()
    claims.restore()
    no_inodes()
    assert "No space left on device" in refusal(lambda: prepare(claims, ref)).what
    assert world.is_clear()


def test_failed_repair_of_a_prepared_claim_takes_nothing_away(world):
    """Its containers may be running: record and holds stay, the kubelet asks again."""
    ref = _a_claim(world).ref
    prepare(world.claims(), ref)
    world.empty_cdi()
    refusal(lambda: prepare(_restored(world, CountingDisk(1, FULL)), ref))
    assert world.recorded() == {"uid-1"}
    assert world.holds() == {device(0): "uid-1", device(1): "uid-1"}


@pytest.mark.parametrize("n", [3, 4])
def test_failed_renewal_after_a_reboot_keeps_the_record(world, n):
    """Whatever of a full prepare after a reboot fails: the claim is still known, and the next try succeeds."""
    ref = _a_claim(world).ref
    prepare(world.claims(), ref)
    world.reboot("boot-2")
    refusal(lambda: prepare(_restored(world, CountingDisk(n, FULL)), ref))
    assert world.recorded() == {"uid-1"}
    assert world.holds() == {device(0): "uid-1", device(1): "uid-1"}
    prepare(_restored(world, CountingDisk()), ref)


def test_refusal_names_the_path_and_the_remedy(world):
    """Whole text, as the user reads it in the Event."""
    reason = refusal(lambda: prepare(world.claims(CountingDisk(3, FULL)), _a_claim(world).ref))
    path = world.state_dir / "claims" / "uid-1.json"
    assert reason.what == f"claim team-a/train-1: {path} on node-a: No space left on device"
    assert reason.remedy == (
        "mend the disk of node-a (space, inodes, mounted read-only?); the kubelet tries again by itself"
    )
    assert world.told == [(a_ref(), reason)]


def _restored(world: World, disk: CountingDisk):
    claims = world.claims(disk)
    claims._restored.set()
    return claims
