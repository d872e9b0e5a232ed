"""Finding the way back, at start and by timer."""

import json
import shutil
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from api.names import ClaimRef
from api.refusals import BadInput, Refused
from kubeletplugin.claims.locks import FILE
from kubeletplugin.claims.recovery import RECHECK_SECONDS, Recovered
from kubeletplugin.claims.states import Event
from kubeletplugin.disk import LocalDisk
from tests.support.claims_world import DRIVER, PlainContent, World, a_claim, a_ref, a_result, device, prepare, refusal
from tests.support.counting_disk import CountingDisk, Crash


@pytest.fixture
def two(world):
    """Two prepared claims."""
    claims = world.claims()
    for number in (1, 2):
        prepare(claims, world.allocate(a_claim(a_ref(number), number)))
    return world


def _agree(world: World, *uids: str) -> None:
    assert world.recorded() == world.cdi_uids() == set(world.holds().values()) == set(uids)
    assert world.leftovers() == []


def test_recovery_of_what_is_right_writes_nothing(two):
    """By timer, most of the time."""
    disk = CountingDisk()
    outcome = two.claims(disk).recover()
    assert (outcome, disk.log) == (Recovered(records=2), [])
    assert outcome.sentence == "2 claims recorded: all as they should be"


def test_start_rebuilds_missing_files_while_pods_run(two):
    """Case G2: one CDI file deleted while the plugin was away; the kubelet does not call."""
    content = {path.name: path.read_bytes() for path in two.cdi_dir.iterdir()}
    next(two.cdi_dir.iterdir()).unlink()
    outcome = two.claims().recover()
    assert outcome == Recovered(records=2, restored=1)
    assert outcome.sentence == "2 claims recorded: 1 restored"
    assert {path.name: path.read_bytes() for path in two.cdi_dir.iterdir()} == content


@pytest.mark.parametrize(
    "damage", [b"", b"{}", b'{"cdiVersion": "0.3.0", "kind": "gpu.lanewise.dev/claim", "devices": []}']
)
def test_start_rebuilds_damaged_files(two, damage):
    """Case G2: content counts, not that a file of the name is there."""
    path = min(two.cdi_dir.iterdir())
    content = path.read_bytes()
    path.write_bytes(damage)
    assert two.claims().recover().restored == 1
    assert path.read_bytes() == content


def test_reboot_restores_everything_before_the_kubelet_calls(two):
    """Case G1: another boot, /var/run empty, links lost."""
    two.reboot("boot-2")
    assert two.claims().recover().restored == 2
    _agree(two, "uid-1", "uid-2")
    assert two.claims().recover() == Recovered(records=2)


def test_files_follow_the_drivers(two):
    """The driver's files changed: what is written for them is renewed."""

    class Newer(PlainContent):
        def common(self, machine):
            return replace(super().common(machine), env=("COMMON=2",))

    two.content = Newer()
    assert two.claims().recover().restored == 2
    assert all(b"COMMON=2" in path.read_bytes() for path in two.cdi_dir.iterdir())


def test_leftovers_of_nobody_are_removed(two):
    """Holds, CDI files and temporary files without a record behind them; ours only."""
    disk = LocalDisk()
    disk.link(two.state_dir / "devices" / device(3), "uid-9")
    (two.state_dir / "claims" / "uid-7.json.1234.tmp").write_bytes(b"{")
    (two.state_dir / "released" / "uid-6.json.1.tmp").write_bytes(b"{")
    path = min(two.cdi_dir.iterdir())
    (two.cdi_dir / f"{DRIVER}-claim_uid-5.json").write_bytes(path.read_bytes())
    (two.cdi_dir / f"{DRIVER}-claim_uid-4.json").write_bytes(b"")
    (two.cdi_dir / f"{DRIVER}-claim_uid-4.json.99.tmp").write_bytes(b"")
    others = two.cdi_dir / "gpu.other.dev-claim_uid-5.json"
    others.write_bytes(path.read_bytes())
    two.epoch = 4e9
    outcome = two.claims().recover()
    assert outcome == Recovered(records=2, removed=3)
    others.unlink()
    _agree(two, "uid-1", "uid-2")
    assert sorted(two.cdi_dir.iterdir()) == sorted(two.cdi_dir.glob("*.json"))


def test_hold_beyond_the_record_is_dropped(two):
    """A recorded claim has exactly the holds of its record."""
    LocalDisk().link(two.state_dir / "devices" / device(3), "uid-1")
    assert two.claims().recover().restored == 1
    assert two.holds() == {device(1): "uid-1", device(2): "uid-2"}


def test_directories_that_were_deleted_are_made_again(two):
    """Somebody cleans up too much: the plugin goes on."""
    claims = two.claims()
    for path in (two.state_dir / "released", two.state_dir / "locks"):
        shutil.rmtree(path)
    claims.recover()
    claims.unprepare(a_ref(1))
    _agree(two, "uid-2")


def test_release_marks_go_after_five_minutes(two):
    """Long after any call that could be late."""
    claims = two.claims()
    claims.unprepare(a_ref(1))
    released = two.state_dir / "released"
    two.now += 299
    claims.recover()
    assert [path.name for path in released.iterdir()] == ["uid-1.json"]
    two.now += 2
    claims.recover()
    assert list(released.iterdir()) == []


def test_release_marks_of_an_earlier_boot_go_at_once(two):
    """No call is older than the boot; a mark that cannot be read goes too."""
    claims = two.claims()
    claims.unprepare(a_ref(1))
    (two.state_dir / "released" / "uid-9.json").write_bytes(b"\0")
    two.reboot("boot-2")
    two.claims().recover()
    assert list((two.state_dir / "released").iterdir()) == []


@pytest.mark.parametrize("loop", [False, True], ids=["directory", "loop"])
@pytest.mark.parametrize("room", ["released", "locks", "devices", "claims"])
def test_what_stands_in_a_files_place_keeps_no_claim_from_being_released(two, room, loop):
    """Nor the plugin from starting, nor other claims from anything."""
    name = {"released": "uid-1.json", "locks": FILE, "devices": device(1), "claims": "uid-1.json"}[room]
    path = two.state_dir / room / name
    path.unlink(missing_ok=True)
    path.symlink_to(path.name) if loop else path.mkdir()
    claims = two.claims()
    claims.recover()
    assert (two.cdi_uids(), two.recorded() | {"uid-1"}) == ({"uid-1", "uid-2"},) * 2
    claims.unprepare(a_ref(1))
    assert two.recorded() | two.cdi_uids() == {"uid-2"}
    claims.unprepare(a_ref(2))


@pytest.mark.parametrize("room", ["released", "cdi"])
def test_no_depth_of_a_file_breaks_off_a_pass(two, room):
    """The claim is mended or let go, the others are looked at."""
    deep = b"[" * 100_000
    (path,) = [two.state_dir / "released/uid-1.json"] if room == "released" else two.cdi_dir.glob("*uid-1*")
    path.write_bytes(deep)
    two.claims().recover()
    two.claims().unprepare(a_ref(1))
    _agree(two, "uid-2")


@pytest.mark.parametrize("name", ["../../evil", "", "a/b", ".", "..", "x" * 300, "a\0b"])
def test_a_record_of_an_impossible_device_is_damage(two, name):
    """No link is made outside our directory, whatever a record says."""
    path = two.state_dir / "claims" / "uid-1.json"
    path.write_text(path.read_text().replace(device(1), json.dumps(name)[1:-1]))
    two.claims().recover()
    assert not (two.state_dir.parent / "evil").is_symlink()
    assert two.recorded() == {"uid-2"}
    assert [item.name.split(".")[0] for item in (two.state_dir / "quarantine").iterdir()] == ["uid-1"]


def test_nothing_is_mended_that_cannot_be_described(two):
    """The GPU driver is not there yet: files stay as they are, holds come back all the same."""
    two.reboot("boot-2")
    machine, two.machine = two.machine, None
    two.claims().recover()
    assert (two.cdi_uids(), set(two.holds().values())) == (set(), {"uid-1", "uid-2"})
    two.machine = machine
    two.claims().recover()
    _agree(two, "uid-1", "uid-2")


def test_lost_device_is_told_once_and_spoils_nobody(two):
    """Case G7: one record refers to a device that exists no more; the other is served, the release succeeds."""
    two.machine = replace(two.machine, gpus=two.machine.gpus[:2])
    two.empty_cdi()
    claims = two.claims()
    outcomes = [claims.recover(), claims.recover()]
    assert [outcome.lost for outcome in outcomes] == [1, 1]
    assert two.cdi_uids() == {"uid-1"}
    ((ref, reason),) = two.told
    assert ref == a_ref(2)
    assert reason.what == f"claim team-a/train-2: {device(2)} on node-a is lost while the claim is prepared"
    assert reason.remedy == (
        "delete the pod and the claim for another device; "
        "to see what node-a has: kubectl get nodeinventory node-a -o yaml"
    )
    assert refusal(lambda: prepare(claims, a_ref(2))).what == f"claim team-a/train-2: node-a has no {device(2)} now"
    claims.unprepare(a_ref(2))
    _agree(two, "uid-1")


def test_device_lost_again_is_told_again(two):
    """It fell off the bus, came back with a reset, and fell off again; a look at unknown hardware tells nothing."""
    whole, less = two.machine, replace(two.machine, gpus=two.machine.gpus[:2])
    claims = two.claims()
    for machine, told in ((less, 1), (None, 1), (less, 1), (whole, 1), (less, 2), (less, 2)):
        two.machine = machine
        claims.recover()
        assert len(two.told) == told
    assert two.told_of == [Event.RECOVER, Event.RECOVER]


def test_content_that_cannot_be_made_now_is_left_for_later(two):
    """Case F4: the driver's files are being replaced; nothing is taken away, and the next pass mends it."""

    class Missing(PlainContent):
        def common(self, machine):
            raise Refused(BadInput("/run/nvidia/driver", "libcuda.so.580 is missing", "wait for the driver"))

    good, two.content = two.content, Missing()
    claims = two.claims()
    with capture_logs() as logs:
        assert (claims.recover().skipped, claims.recover().skipped) == (2, 2)
    assert [entry["event"] for entry in logs] == ["claim not restored", "claim not restored"]
    assert two.cdi_uids() == {"uid-1", "uid-2"}
    two.content = good
    assert claims.recover() == Recovered(records=2)


def test_disk_that_fails_one_claim_fails_no_other(two):
    """Left, counted, and mended with the next pass."""
    two.empty_cdi()
    outcome = two.claims(CountingDisk(1, 28)).recover()
    assert (outcome.skipped, outcome.restored) == (1, 1)
    two.claims().recover()
    _agree(two, "uid-1", "uid-2")


def test_cut_off_release_is_finished(two):
    """The kubelet has asked for it, so it may be done without being asked again."""
    with pytest.raises(Crash):
        two.claims(CountingDisk(2, Crash)).unprepare(a_ref(1))
    assert two.claims().recover().removed == 1
    _agree(two, "uid-2")


def _later(world: World, seconds: float = RECHECK_SECONDS + 1) -> None:
    world.now += seconds


def test_claim_that_is_gone_twice_is_released_and_told(two):
    """dra-driver-nvidia-gpu #1278: the release never came. Not at once: its containers may still run (Case H3)."""
    claims = two.claims()
    two.delete(a_ref(1))
    assert claims.recover().abandoned == 0
    _later(two, RECHECK_SECONDS - 1)
    assert claims.recover().abandoned == 0
    _agree(two, "uid-1", "uid-2")
    _later(two, 2)
    outcome = claims.recover()
    assert outcome.sentence == "2 claims recorded: 1 released because the API knows them no more"
    _agree(two, "uid-2")
    ((ref, reason),) = two.told
    assert ref == a_ref(1)
    assert reason.what == (
        "claim team-a/train-1: it exists no more, and the kubelet never released it; "
        f"node-a now did, {device(1)} is free"
    )
    assert reason.remedy == "nothing need be done"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda world: world.delete(a_ref(1)), "it exists no more"),
        (lambda world: world.allocate(a_claim(ClaimRef("team-a", "train-1", "new"), 1)), "a new claim has its name"),
        (
            lambda world: world.allocate(a_claim(a_ref(1), allocated=False)),
            f"{device(1)} is no longer allocated to it",
        ),
        (lambda world: world.allocate(a_claim(a_ref(1), 3)), f"{device(1)} is no longer allocated to it"),
    ],
)
def test_reasons_to_release_unasked(two, change, why):
    """Gone, another UID, no allocation, another device: each told as it is."""
    claims = two.claims()
    change(two)
    claims.recover()
    _later(two)
    claims.recover()
    _agree(two, "uid-2")
    assert two.told[0][1].why == why


def test_claim_that_came_back_between_two_looks_stays(two):
    """A look in between that finds it starts the count anew."""
    claims = two.claims()
    claim = two.api.pop(("team-a", "train-1"))
    claims.recover()
    two.allocate(claim)
    _later(two)
    claims.recover()
    two.delete(a_ref(1))
    _later(two)
    claims.recover()
    _agree(two, "uid-1", "uid-2")


def test_api_that_does_not_answer_leaves_everything(two):
    """For hours; what was seen missing before counts on."""
    claims = two.claims()
    two.api_down = True
    for _ in range(10):
        _later(two)
        assert claims.recover() == Recovered(records=2)
    _agree(two, "uid-1", "uid-2")


def test_api_that_does_not_answer_is_asked_once_a_round(two):
    """Each question takes its time-out; what is not asked counts on, and one claim never answered keeps none from its turn."""
    claims, asked = two.claims(), []
    two.delete(a_ref(1))
    two.delete(a_ref(2))
    claims.compare()
    _later(two)
    silent, fetch = "uid-1", two.fetch

    def fetching(ref):
        asked.append(ref.uid)
        two.api_down = ref.uid == silent
        return fetch(ref)

    claims._recovery._fetch = fetching
    assert claims.compare() == 0
    assert asked == ["uid-1"]
    _later(two)
    assert claims.compare() == 1
    assert asked == ["uid-1", "uid-2", "uid-1"]
    _agree(two, "uid-1")
    _later(two)
    silent = ""
    assert claims.compare() == 1
    _agree(two)


def test_start_asks_no_api_server(two):
    """One that is away keeps no node from starting."""
    two.empty_cdi()
    two.fetched = 0
    assert two.claims().restore() == Recovered(records=2, restored=2)
    assert two.fetched == 0


def test_restart_starts_the_count_anew(two):
    """A plugin that restarts often releases later, never sooner."""
    two.delete(a_ref(1))
    for _ in range(3):
        two.claims().recover()
        _later(two)
    _agree(two, "uid-1", "uid-2")


def test_claim_prepared_anew_between_two_looks_stays(two):
    """The record that was missed is not the one that is there."""
    claims = two.claims()
    claim = two.api[("team-a", "train-1")]
    two.delete(a_ref(1))
    claims.recover()
    claims.unprepare(a_ref(1))
    _later(two)
    two.allocate(claim)
    prepare(claims, a_ref(1))
    two.delete(a_ref(1))
    claims.recover()
    _agree(two, "uid-1", "uid-2")


def test_claim_prepared_anew_while_the_api_is_asked_stays(two):
    """Released and prepared between the look at the record and the release that nobody asked for."""
    claims, other = two.claims(), two.claims()
    claim = two.api[("team-a", "train-1")]
    two.delete(a_ref(1))
    claims.recover()
    _later(two)

    def kubelet() -> None:
        two.while_fetching = lambda: None
        other.unprepare(a_ref(1))
        two.allocate(claim)
        prepare(other, a_ref(1))

    two.while_fetching = kubelet
    assert claims.recover().abandoned == 0
    _agree(two, "uid-1", "uid-2")


def test_api_is_asked_rarely(two):
    """One question a claim every ten minutes, however often recovery runs: a thousand nodes share the API server."""
    claims = two.claims()
    two.fetched = 0
    for _ in range(20):
        claims.recover()
        _later(two, 30)
    assert two.fetched == 2


def test_admin_and_shared_devices_are_restored_without_holds(world):
    """They take none when prepared, so they get none when restored."""
    claims = world.claims()
    prepare(claims, world.allocate(a_claim(a_ref(), a_result(0, admin_access=True), a_result(1, share_id="s"))))
    world.reboot("boot-2")
    world.claims().recover()
    assert (world.holds(), world.cdi_uids()) == ({}, {"uid-1"})


def test_state_directory_that_cannot_be_had_is_refused_with_its_path(world):
    """One sentence with the path and the remedy, at start."""
    world.state_dir.write_text("a file")
    reason = refusal(world.claims)
    assert reason.what == f"{world.state_dir / 'claims'}: Not a directory"
    assert reason.remedy == (
        "the plugin's data directory must be a directory on a disk that can be written and survives a reboot"
    )
