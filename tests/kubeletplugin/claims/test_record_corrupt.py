"""Records that cannot be read: set aside with their content, said, and in nobody's way (Case G7)."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from kubeletplugin.cdi.spec import Edits
from kubeletplugin.claims.record import Damaged, Newer, Record, RecordedDevice, decode, encode
from kubeletplugin.claims.refusals import HeldUnreadably
from tests.support.claims_world import PlainContent, World, a_claim, a_ref, device, prepare, refusal
from tests.support.counting_disk import FULL, CountingDisk

GOOD = encode(Record(a_ref(), "boot-1", (RecordedDevice("pool", "gpu-0", ("gpu",)),), "2026-11-30T00:00:00+00:00"))
DAMAGED = {
    "empty": (b"", "is empty"),
    "zeros": (b"\0" * 300, "is no JSON"),
    "cut off": (GOOD[: len(GOOD) // 2], "is no JSON"),
    "not text": (b"\xff\xfe\x00", "is no JSON"),
    "a list": (b"[]", "states no format"),
    "no format": (b"{}", "states no format"),
    "odd format": (b'{"format": true}', "states no format"),
    "no devices": (GOOD.replace(b'"devices"', b'"deviecs"'), "lacks 'devices'"),
    "device no text": (GOOD.replace(b'"gpu-0"', b"7"), "has a field of the wrong type: 7 is no text"),
    "another's": (GOOD.replace(b"uid-1", b"uid-2"), "tells of another claim, uid-2"),
    "deep": (b"[" * 100_000, "is no JSON"),
}


@pytest.mark.parametrize(("content", "problem"), DAMAGED.values(), ids=DAMAGED)
def test_damage_is_named(content, problem):
    """What is the matter with the file, in words."""
    assert decode(content, uid="uid-1") == Damaged(problem)


@settings(max_examples=50)
@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps).map(str.encode)
)
def test_no_content_makes_reading_fail(content):
    """Whatever stands in the file, reading it ends in one of the three answers."""
    assert isinstance(decode(content, uid="uid-1"), Record | Newer | Damaged)


@settings(max_examples=50)
@given(
    st.dictionaries(
        st.sampled_from(["format", "claim", "bootID", "devices", "preparedAt"]),
        st.none() | st.text() | st.integers() | st.lists(st.text()),
    )
)
def test_no_field_makes_reading_fail(fields):
    """Nor does any field of another type."""
    content = json.dumps({**json.loads(GOOD), **fields}).encode()
    assert isinstance(decode(content, uid="uid-1"), Record | Newer | Damaged)


def test_record_reads_as_it_was_written():
    """And unknown fields of a later version of the same format are ignored."""
    document = json.loads(GOOD)
    document["sharing"] = {"strategy": "x"}
    document["devices"][0]["mig"] = 1
    assert encode(decode(json.dumps(document).encode(), uid="uid-1")) == GOOD


def test_first_formats_record_is_still_read():
    """The promise of format 1: this very text was written by the first version."""
    first = (
        b'{"format": 1, "claim": {"namespace": "a", "name": "b", "uid": "u"}, "bootID": "x", "preparedAt": "",'
        b' "devices": [{"pool": "n/d", "device": "gpu-65-00-0", "requests": ["gpu"]}]}'
    )
    assert decode(first, uid="u").devices == (RecordedDevice("n/d", "gpu-65-00-0", ("gpu",)),)


def _break(world: World, number: int, content: bytes = b"") -> None:
    (world.state_dir / "claims" / f"uid-{number}.json").write_bytes(content)


@pytest.fixture
def three(world):
    """Three prepared claims, the second one's record broken."""
    claims = world.claims()
    for number in (1, 2, 3):
        prepare(claims, world.allocate(a_claim(a_ref(number), number)))
    _break(world, 2, b"\x00garbage")
    return world


def test_one_bad_record_stops_nobody_else(three):
    """The plugin starts, the others are served, and the bad one's content is kept."""
    claims = three.claims()
    with capture_logs() as logs:
        assert (claims.recover().set_aside, claims.recover().set_aside) == (1, 0)
    assert three.recorded() == {"uid-1", "uid-3"}
    assert three.quarantined() == ["uid-2.boot-1.0.json"]
    assert (three.state_dir / "quarantine" / "uid-2.boot-1.0.json").read_bytes() == b"\x00garbage"
    said = [entry for entry in logs if entry["log_level"] == "error"]
    assert [(entry["event"], entry["uid"]) for entry in said] == [
        ("damaged record found", "uid-2"),
        ("record set aside", "uid-2"),
    ]
    prepare(claims, a_ref(1))
    prepare(claims, three.allocate(a_claim(a_ref(4), 0)))


def test_claim_of_bad_record_keeps_its_device_and_cdi_file(three):
    """Its containers run, and may be restarted without any call to us."""
    claims = three.claims()
    claims.recover()
    assert three.cdi_uids() == {"uid-1", "uid-2", "uid-3"}
    reason = refusal(lambda: prepare(claims, three.allocate(a_claim(a_ref(4), 2))))
    assert reason == HeldUnreadably(a_ref(4), device(2), "node-a", "uid-2")


@pytest.mark.parametrize("recovered", [False, True])
def test_unprepare_of_bad_record_succeeds_and_clears(three, recovered):
    """Before it was set aside or after."""
    claims = three.claims()
    if recovered:
        claims.recover()
    claims.unprepare(a_ref(2))
    assert three.holds() == {device(1): "uid-1", device(3): "uid-3"}
    assert three.cdi_uids() == three.recorded() == {"uid-1", "uid-3"}
    prepare(claims, three.allocate(a_claim(a_ref(4), 2)))


@pytest.mark.parametrize("recovered", [False, True])
def test_prepare_of_bad_record_makes_a_good_one(three, recovered):
    """The kubelet restarts and asks again: the claim is whole again."""
    claims = three.claims()
    if recovered:
        claims.recover()
    prepare(claims, a_ref(2))
    assert three.recorded() == {"uid-1", "uid-2", "uid-3"}
    assert three.quarantined() == ["uid-2.boot-1.0.json"]
    claims.recover()
    claims.unprepare(a_ref(2))
    assert three.cdi_uids() == {"uid-1", "uid-3"}


def test_failed_prepare_of_bad_record_takes_nothing_from_its_containers(three):
    """The disk fails at the CDI file: hold and file that were there before stay."""

    class Newer(PlainContent):
        def common(self, machine):
            return Edits(env=("COMMON=2",))

    three.claims().recover()
    three.content = Newer()
    disk = CountingDisk(3, FULL)  # the hold is there already, then the record, then the CDI file
    claims = three.claims(disk)
    claims._restored.set()
    refusal(lambda: prepare(claims, a_ref(2)))
    assert disk.log[2].startswith("write cdi/")
    assert three.cdi_uids() == {"uid-1", "uid-2", "uid-3"}
    assert three.holds()[device(2)] == "uid-2"


def test_second_damage_does_not_overwrite_the_first(three):
    """Each content is kept under a name of its own."""
    claims = three.claims()
    claims.recover()
    prepare(claims, a_ref(2))
    _break(three, 2, b"again")
    claims.recover()
    assert three.quarantined() == ["uid-2.boot-1.0.json", "uid-2.boot-1.1.json"]


def test_reboot_frees_what_a_bad_record_held(three):
    """After a reboot no container of it can be running: nothing blocks a device for ever."""
    three.claims().recover()
    devices = three.state_dir / "devices"
    three.reboot("boot-2")
    (devices / device(2)).symlink_to("uid-2")  # had it survived
    claims = three.claims()
    claims.recover()
    assert three.holds() == {device(1): "uid-1", device(3): "uid-3"}
    prepare(claims, three.allocate(a_claim(a_ref(4), 2)))


def test_owner_is_told_where_the_record_still_names_it(world):
    """An Event on the claim, with what was done; whole text."""
    claims, ref = world.claims(), world.allocate(a_claim(a_ref(), 0))
    prepare(claims, ref)
    path = world.state_dir / "claims" / "uid-1.json"
    path.write_bytes(path.read_bytes().replace(b'"devices"', b'"deviecs"'))
    claims.recover()
    ((told, reason),) = world.told
    assert told == ref
    assert reason.what == (
        f"claim team-a/train-1: its record on node-a lacks 'devices'; it was moved to {world.state_dir / 'quarantine'}"
    )
    assert reason.remedy == "nothing need be done: the claim keeps its devices until its pod is gone"


def test_record_of_a_newer_version_is_left_where_it_is(world):
    """In a rolling update back, the newer version's record is not ours to move; releasing works."""
    claims, ref = world.claims(), world.allocate(a_claim(a_ref(), 0))
    prepare(claims, ref)
    path = world.state_dir / "claims" / "uid-1.json"
    newer = path.read_bytes().replace(b'"format": 1', b'"format": 2')
    path.write_bytes(newer)
    claims.recover()
    assert path.read_bytes() == newer
    assert "a newer version of the plugin prepared it" in refusal(lambda: prepare(claims, ref)).what
    other = world.allocate(a_claim(a_ref(2), 0))
    assert isinstance(refusal(lambda: prepare(claims, other)), HeldUnreadably)
    claims.unprepare(ref)
    assert world.is_clear()


def test_directory_in_place_of_a_record_is_set_aside(world):
    """Whatever stands there."""
    claims = world.claims()
    (world.state_dir / "claims" / "uid-1.json").mkdir()
    claims.recover()
    assert world.quarantined() == ["uid-1.boot-1.0.json"]
    prepare(claims, world.allocate(a_claim(a_ref(), 0)))


def test_foreign_files_are_left_alone(world):
    """Nothing we did not make is destroyed."""
    claims = world.claims()
    foreign = [
        world.state_dir / "claims" / "README",
        world.state_dir / "claims" / ".hidden.json",
        world.state_dir / "devices" / "note",
        world.state_dir / "locks" / "other.pid",
    ]
    for path in foreign:
        path.write_text("mine")
    world.cdi_dir.mkdir()
    other = world.cdi_dir / "nvidia.yaml"
    other.write_text("cdiVersion: 0.5.0")
    prepare(claims, world.allocate(a_claim(a_ref(), 0)))
    claims.recover()
    claims.unprepare(a_ref())
    claims.recover()
    assert all(path.read_text() == "mine" for path in foreign)
    assert other.exists()


def test_unprepare_of_a_claim_set_aside_whose_cdi_file_is_gone_drops_its_holds(world):
    """All was looked at and is as it should be; what it holds is known from the holds only."""
    claims = world.claims()
    ref = world.allocate(a_claim(a_ref(1), 1))
    prepare(claims, ref)
    _break(world, 1)
    claims.recover()
    world.empty_cdi()
    claims.recover()
    claims.unprepare(ref)
    assert world.is_clear()
