"""Prepare and unprepare when nothing goes wrong."""

import json
from dataclasses import replace

import pytest

from api.claims import PreparedDevice
from api.names import ClaimRef
from kubeletplugin.claims.refusals import NoMachine
from kubeletplugin.disk import LocalDisk
from tests.support.claims_world import DRIVER, POOL, World, a_claim, a_ref, a_result, device, prepare, refusal
from tests.support.counting_disk import CountingDisk


def test_prepare_answers_with_devices_pools_and_cdi_ids(world):
    """The kubelet gets one entry for each device, named as the CDI file names it."""
    ref = world.allocate(a_claim(a_ref(), a_result(0, request="a"), a_result(2, request="b")))
    assert prepare(world.claims(), ref) == (
        PreparedDevice(("a",), POOL, device(0), (f"{DRIVER}/claim=uid-1-{device(0)}",)),
        PreparedDevice(("b",), POOL, device(2), (f"{DRIVER}/claim=uid-1-{device(2)}",)),
    )
    names = [item["name"] for item in json.loads(next(world.cdi_dir.iterdir()).read_bytes())["devices"]]
    assert names == [f"uid-1-{device(0)}", f"uid-1-{device(2)}"]


def test_request_names_are_base_names(world):
    """A chosen alternative is answered under the main request's name, which is all the kubelet compares."""
    ref = world.allocate(a_claim(a_ref(), a_result(0, request="gpu/big")))
    assert prepare(world.claims(), ref)[0].requests == ("gpu",)


def test_device_of_two_requests_lists_both(world):
    """One device serving two requests of a claim is one entry; its CDI id is not said twice."""
    results = (a_result(0, request="a"), a_result(0, request="b/x", admin_access=True), a_result(0, request="a"))
    (answer,) = prepare(world.claims(), world.allocate(a_claim(a_ref(), *results)))
    assert answer.requests == ("a", "b")
    assert world.holds() == {device(0): "uid-1"}


def test_share_id_is_echoed_and_takes_no_hold(world):
    """Two claims on shares of one device both get it, each with its share's ID (Case F8)."""
    claims = world.claims()
    one = world.allocate(a_claim(a_ref(1), a_result(0, share_id="s1")))
    two = world.allocate(a_claim(a_ref(2), a_result(0, share_id="s2")))
    assert prepare(claims, one)[0].share_id == "s1"
    assert prepare(claims, two)[0].cdi_ids == (f"{DRIVER}/claim=uid-2-{device(0)}-s2",)
    assert world.holds() == {}


def test_two_shares_of_one_device_in_one_claim_are_two_entries(world):
    """Each share is a device of its own to the runtime."""
    ref = world.allocate(a_claim(a_ref(), a_result(0, share_id="s1"), a_result(0, share_id="s2")))
    assert [item.share_id for item in prepare(world.claims(), ref)] == ["s1", "s2"]


def test_results_of_other_drivers_are_left_alone(world):
    """dra-driver-nvidia-gpu #1327: a claim with a NIC of another driver prepares our part only."""
    nic = replace(a_result(0, request="nic"), driver="dra.net", device="eth1", pool="node-a")
    ref = world.allocate(a_claim(a_ref(), nic, a_result(1)))
    assert [item.device for item in prepare(world.claims(), ref)] == [device(1)]


def test_claim_without_our_results_answers_nothing_and_leaves_nothing(world):
    """Not our business: no record, no file."""
    ref = world.allocate(a_claim(a_ref(), replace(a_result(0), driver="dra.net")))
    assert prepare(world.claims(), ref) == ()
    assert world.is_clear()


def test_second_prepare_is_the_same_answer_without_a_write(world):
    """Case G4: Prepare, Prepare, Unprepare. The second does nothing; the release works."""
    disk = CountingDisk()
    claims, ref = world.claims(disk), world.allocate(a_claim(a_ref(), 0, 1))
    first = prepare(claims, ref)
    written = disk.count
    assert prepare(claims, ref) == first
    assert disk.count == written, disk.log[written:]
    claims.unprepare(ref)
    assert world.is_clear()


def test_prepare_costs_the_same_however_many_claims_there_are(world):
    """One durable write for the record and one for the CDI file, whatever else is prepared."""
    disk = CountingDisk()
    claims = world.claims(disk)
    counts = []
    for number in range(4):
        before = disk.count
        prepare(claims, world.allocate(a_claim(a_ref(number), number)))
        counts.append(disk.count - before)
    assert counts == [3, 3, 3, 3], disk.log  # link, record, CDI file


def test_record_says_what_is_needed_without_the_api(world):
    """The record holds the claim, its boot, and what each device is."""
    prepare(world.claims(), world.allocate(a_claim(a_ref(), a_result(0, share_id="s", request="gpu/x"))))
    assert json.loads((world.state_dir / "claims" / "uid-1.json").read_bytes()) == {
        "format": 1,
        "claim": {"namespace": "team-a", "name": "train-1", "uid": "uid-1"},
        "bootID": "boot-1",
        "preparedAt": "2026-11-30T00:16:40Z",
        "devices": [
            {
                "pool": POOL,
                "device": device(0),
                "requests": ["gpu"],
                "admin": False,
                "shareID": "s",
                "uuid": "GPU-65",
                "pci": "0000:65:00.0",
            }
        ],
    }


def test_unprepare_of_unknown_claim_succeeds(world):
    """The kubelet may release what never arrived here."""
    world.claims().unprepare(a_ref(7))
    assert world.is_clear()


def test_unprepare_needs_no_api_server_and_no_hardware(world):
    """Case H1: the claim object is gone, the API server is down, the driver too."""
    claims, ref = world.claims(), world.allocate(a_claim(a_ref(), 0))
    prepare(claims, ref)
    world.delete(ref)
    world.api_down, world.machine, fetched = True, None, world.fetched
    claims.unprepare(ref)
    claims.unprepare(ref)
    assert world.is_clear()
    assert world.fetched == fetched


def test_unprepare_leaves_other_claims_intact(world):
    """Case F8: two claims with shares of one device, one released: the other's file is as it was."""
    claims = world.claims()
    one = world.allocate(a_claim(a_ref(1), a_result(0, share_id="s1")))
    two = world.allocate(a_claim(a_ref(2), a_result(0, share_id="s2")))
    prepare(claims, one)
    prepare(claims, two)
    claims.unprepare(one)
    assert (world.cdi_uids(), world.recorded()) == ({"uid-2"}, {"uid-2"})


def test_admin_access_stands_beside_the_holder(world):
    """Case A8: c2 with admin access sees c1's device and leaves its hold alone; c3 is refused before and after."""
    claims = world.claims()
    c1 = world.allocate(a_claim(a_ref(1), 0))
    c2 = world.allocate(a_claim(a_ref(2), a_result(0, admin_access=True)))
    c3 = world.allocate(a_claim(a_ref(3), 0))
    prepare(claims, c1)
    assert prepare(claims, c2)[0].device == device(0)
    refusal(lambda: prepare(claims, c3))
    claims.unprepare(c2)
    assert world.holds() == {device(0): "uid-1"}
    refusal(lambda: prepare(claims, c3))


def test_held_device_is_free_after_its_release(world):
    """Case H3: u2 asks before u1 is released, is refused, and gets the device with the kubelet's retry afterwards."""
    claims = world.claims()
    one, two = world.allocate(a_claim(a_ref(1), 0)), world.allocate(a_claim(a_ref(2), 0))
    prepare(claims, one)
    refusal(lambda: prepare(claims, two))
    assert (world.recorded(), world.cdi_uids()) == ({"uid-1"}, {"uid-1"})
    claims.unprepare(one)
    prepare(claims, two)
    assert world.holds() == {device(0): "uid-2"}


def test_refusal_at_the_second_device_gives_the_first_back(world):
    """All or nothing: holds taken before the refusal are dropped."""
    claims = world.claims()
    prepare(claims, world.allocate(a_claim(a_ref(1), 1)))
    refusal(lambda: prepare(claims, world.allocate(a_claim(a_ref(2), 0, 1, 2))))
    assert world.holds() == {device(1): "uid-1"}


def test_recreated_claim_of_the_same_name_is_another_claim(world):
    """A pod deleted by force, its claim made anew under the same name: the old one holds until released."""
    claims = world.claims()
    old = world.allocate(a_claim(ClaimRef("team-a", "train", "old"), 0))
    prepare(claims, old)
    new = world.allocate(a_claim(ClaimRef("team-a", "train", "new"), 0))
    refusal(lambda: prepare(claims, new))
    claims.unprepare(old)
    prepare(claims, new)
    assert world.holds() == {device(0): "new"}


def test_late_prepare_after_release_aborts(world):
    """Case G6: Prepare waits (here for the API), Unprepare succeeds, Prepare goes on: nothing may be left."""
    claims, other = world.claims(), world.claims()
    ref = world.allocate(a_claim(a_ref(), 0))
    world.while_fetching = lambda: other.unprepare(ref)
    reason = refusal(lambda: prepare(claims, ref))
    assert reason.what == "claim team-a/train-1: it was released while this call waited"
    assert world.is_clear()
    assert world.told == []


def test_prepare_that_comes_after_the_release_succeeds(world):
    """Case G6: the mark of a release stops older calls only: a new pod may use the claim again at once."""
    claims, ref = world.claims(), world.allocate(a_claim(a_ref(), 0))
    prepare(claims, ref)
    claims.unprepare(ref)
    prepare(claims, ref)
    assert world.recorded() == world.cdi_uids() == {"uid-1"}


def test_release_mark_does_not_concern_other_claims(world):
    """Case G6: a truly new claim (other UID) is not held up."""
    claims = world.claims()
    one, two = world.allocate(a_claim(a_ref(1), 0)), world.allocate(a_claim(a_ref(2), 0))
    world.while_fetching = lambda: claims.unprepare(one)
    prepare(claims, two)
    assert world.recorded() == {"uid-2"}


def test_cancelled_call_leaves_nothing(world):
    """Nobody waits for the answer: nothing is prepared, and nobody is told."""
    ref = world.allocate(a_claim(a_ref(), 0))
    reason = refusal(lambda: world.claims().prepare(ref, cancelled=lambda: True))
    assert reason.what == "claim team-a/train-1: the kubelet has given up this call"
    assert (world.is_clear(), world.told) == (True, [])


def test_missing_cdi_file_is_written_again(world):
    """Case G1: /var/run/cdi is empty, the kubelet calls again: the same answer, and the file is back."""
    claims, ref = world.claims(), world.allocate(a_claim(a_ref(), 0))
    first = prepare(claims, ref)
    content = next(world.cdi_dir.iterdir()).read_bytes()
    world.empty_cdi()
    assert prepare(claims, ref) == first
    assert next(world.cdi_dir.iterdir()).read_bytes() == content


def test_wrong_cdi_file_is_rewritten(world):
    """A file that says something else than this hardware needs is replaced."""
    claims, ref = world.claims(), world.allocate(a_claim(a_ref(), 0))
    prepare(claims, ref)
    path = next(world.cdi_dir.iterdir())
    content = path.read_bytes()
    path.write_bytes(content.replace(b"/dev/nvidia101", b"/dev/nvidia7"))
    prepare(claims, ref)
    assert path.read_bytes() == content


def test_prepare_after_reboot_renews_the_record(world):
    """Case G1, Case G12: the record is of another boot, holds and file are lost: a full prepare, and success."""
    ref = world.allocate(a_claim(a_ref(), 0))
    first = prepare(world.claims(), ref)
    world.reboot("boot-2")
    assert prepare(world.claims(), ref) == first
    assert json.loads((world.state_dir / "claims" / "uid-1.json").read_bytes())["bootID"] == "boot-2"
    assert (world.holds(), world.cdi_uids()) == ({device(0): "uid-1"}, {"uid-1"})


def test_complete_claim_is_answered_while_the_driver_is_away(world):
    """Case G12: the kubelet restarts while the driver is reloaded: what is complete is answered."""
    claims, ref = world.claims(), world.allocate(a_claim(a_ref(), 0))
    first = prepare(claims, ref)
    world.machine = None
    assert prepare(claims, ref) == first


@pytest.mark.parametrize("content", [b"", b'{"cdiVersion": "0.', b"\0" * 64], ids=["empty", "cut off", "zeros"])
def test_a_file_that_a_power_loss_spoilt_is_not_answered_for_while_the_driver_is_away(world, content):
    """CDI files are not synced: where their directory is on a disk, one may be spoilt, and no container would start."""
    prepare(world.claims(), world.allocate(a_claim(a_ref(), 0)))
    (path,) = world.cdi_dir.glob("*.json")
    right = path.read_bytes()
    path.write_bytes(content)
    machine, world.machine = world.machine, None
    claims = world.claims()
    claims.recover()
    assert isinstance(refusal(lambda: prepare(claims, a_ref())), NoMachine)
    assert (world.recorded(), world.holds()) == ({"uid-1"}, {device(0): "uid-1"})
    world.machine = machine
    claims.recover()
    assert path.read_bytes() == right
    assert prepare(claims, a_ref())


def test_nobody_is_let_in_before_lost_holds_are_back(world):
    """Links do not survive a power loss: a new process restores them before its first prepare, even unasked."""
    prepare(world.claims(), world.allocate(a_claim(a_ref(1), 0)))
    world.reboot("boot-2")
    two = world.allocate(a_claim(a_ref(2), 0))
    assert "is still held by claim team-a/train-1" in refusal(lambda: prepare(world.claims(), two)).what


def test_stale_hold_does_not_block(world):
    """A hold that no record and no process stands behind (a kill just after it was taken) is taken over."""
    claims, ref = world.claims(), world.allocate(a_claim(a_ref(), 0))
    claims.recover()
    LocalDisk().link(world.state_dir / "devices" / device(0), "uid-9")
    prepare(claims, ref)
    assert world.holds() == {device(0): "uid-1"}


@pytest.mark.parametrize("uid", ["", "../../etc/passwd", "a/b", ".", "uid.json", "x" * 200])
def test_impossible_uid_touches_no_disk(world, uid):
    """What cannot name a file was never prepared: prepare refuses it, unprepare has nothing to do."""
    claims, ref = world.claims(), ClaimRef("team-a", "train", uid)
    world.allocate(a_claim(ref, 0))
    assert "none that Kubernetes gives" in refusal(lambda: prepare(claims, ref)).what
    claims.unprepare(ref)
    assert world.is_clear()


def test_second_process_answers_as_the_first(world: World):
    """State lives on disk only: a second process answers as the first (Case H4)."""
    ref = world.allocate(a_claim(a_ref(), 0))
    first = prepare(world.claims(), ref)
    second = world.claims()
    assert prepare(second, ref) == first
    second.unprepare(ref)
    assert world.is_clear()
