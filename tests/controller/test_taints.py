"""Which taints a device has, and how they come to and go from the slices."""

import dataclasses

import pytest

from api.health import LOST, MEMORY_PENDING, OFF_THE_BUS, REMAP_PENDING, Ailment, known, of_xid
from api.refusals import Refused
from controller.decide import decide
from controller.device import Device, Taint
from controller.liveness import NodeSigns, Signs
from controller.settings import Settings, parse
from controller.taints import taints_of
from controller.validate import faults_of_pool
from tests.controller.test_decide import DRIVER, facts
from tests.support.controlled_cluster import SECONDS, a_controller, a_town
from tests.support.gpus import a_gpu, a_machine

THEN, LATER = "2026-12-01T10:00:00Z", "2026-12-01T11:00:00Z"
OFF = known(LOST, OFF_THE_BUS, THEN)
PENDING = known(MEMORY_PENDING, REMAP_PENDING, THEN)
STALE = NodeSigns((Signs("i1", True, 0.0, True, 0.0),), slices_exist=True)


def xid(number, since=THEN):
    ailment = of_xid(number, since)
    assert ailment is not None
    return ailment


def taints(*ailments, effects=None, others=()):
    return [
        (taint.key.removeprefix("lanewise.dev/"), taint.value, taint.effect, taint.since)
        for taint in taints_of(Device("gpu-0", ailments=ailments), effects or {}, others)
    ]


def test_each_kind_is_one_taint_with_its_own_effect():
    """What makes a GPU unfit keeps pods away; what is only to be known does not."""
    assert taints() == []
    assert taints(OFF, PENDING) == [
        ("lost", "off-the-bus", "NoSchedule", THEN),
        ("memory-pending", "remap-pending", "None", THEN),
    ]


def test_effects_are_set_by_kind():
    """And for that kind only."""
    assert [
        effect for _, _, effect, _ in taints(OFF, xid(48), PENDING, effects={"lost": "NoExecute", "xid": "None"})
    ] == [
        "NoExecute",
        "None",
        "None",
    ]


def test_no_device_has_more_taints_than_the_api_server_takes():
    """A later plugin may know more kinds than fit beside the taint of a dead plugin, which must not be refused with them."""
    many = tuple(Ailment(f"kind-{number}", "c", THEN, "m", "r") for number in range(16))
    told = taints(OFF, *many, others=(Taint("lanewise.dev/unreachable", "silent", "NoSchedule"),))
    assert len(told) == 16
    assert [kind for kind, *_ in told[:3]] == ["unreachable", "lost", "kind-0"]


def test_two_xids_are_one_taint_that_began_with_the_first():
    """The second must not restart the seconds of a toleration."""
    assert taints(xid(119, LATER), xid(48)) == [("xid", "119", "NoSchedule", THEN)]


def test_a_kind_of_a_later_plugin_keeps_pods_away():
    """A controller that is older than the node's plugin does not know better."""
    assert taints(Ailment("melting", "now", THEN, "it melts", "run")) == [("melting", "now", "NoSchedule", THEN)]


def test_a_silent_plugins_taint_stands_beside_them():
    """Both hold: each is taken away by what put it there."""
    ailing = a_machine(2, gpus=(a_gpu(0x10, ailments=(OFF,)), a_gpu(0x20)))
    for signs, keys in ((facts().signs, [["lost"], []]), (STALE, [["unreachable", "lost"], ["unreachable"]])):
        found = decide(
            facts(ailing, signs=signs), 100.0, driver=DRIVER, stale_seconds=40.0, allow_shared_ownership=False
        )
        (spec,) = found.slices
        assert [
            [taint["key"].removeprefix("lanewise.dev/") for taint in device.get("taints", [])]
            for device in spec["devices"]
        ] == keys
        assert found.ailing == 1


def test_what_ails_is_in_the_sentence():
    """The condition's message tells which device and what its taint does."""
    ailing = a_machine(2, gpus=(a_gpu(0x10, ailments=(OFF, PENDING)), a_gpu(0x20)))
    found = decide(facts(ailing), 100.0, driver=DRIVER, stale_seconds=40.0, allow_shared_ownership=False)
    assert found.message == (
        "2 GPUs published; gpu-10-00-0 lost (off-the-bus): NoSchedule; gpu-10-00-0 memory-pending (remap-pending): None"
    )
    assert found.published


def test_a_machine_with_every_gpu_ailing_in_every_way_stays_within_the_limits():
    """Case I3: 64 devices in a slice with taints, at most 16 taints a device."""
    codes = {
        "lost": "off-the-bus",
        "reset-needed": "gpu-reset",
        "memory": "remap-failed",
        "memory-pending": "remap-pending",
    }
    every = (*(known(kind, code, THEN) for kind, code in codes.items()), xid(48), xid(4711))
    machine = a_machine(200)
    machine = dataclasses.replace(machine, gpus=tuple(dataclasses.replace(gpu, ailments=every) for gpu in machine.gpus))
    found = decide(facts(machine, signs=STALE), 100.0, driver=DRIVER, stale_seconds=40.0, allow_shared_ownership=False)
    assert faults_of_pool(found.slices) == ()
    assert [len(spec["devices"]) for spec in found.slices] == [64, 64, 64, 8]


def test_effects_are_read_from_a_flag():
    """Commas or spaces; nothing given is nothing set."""
    assert parse([], {}).health_effects == {}
    assert parse(["--health-effects=lost=NoExecute,xid=None memory-pending=NoSchedule"], {}).health_effects == {
        "lost": "NoExecute",
        "xid": "None",
        "memory-pending": "NoSchedule",
    }


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("lots=NoExecute", "--health-effects: 'lots' is no kind of ailment"),
        ("lost=Never", "--health-effects: 'lost=Never' names none of None, NoSchedule, NoExecute"),
        ("lost", "--health-effects: 'lost' names none of None, NoSchedule, NoExecute"),
        ("lost=None,lost=NoSchedule", "--health-effects: lost is there twice"),
    ],
)
def test_bad_effects_are_refused(text, fault):
    """Said at start, with what may be written."""
    with pytest.raises(Refused) as refused:
        parse([f"--health-effects={text}"], {})
    assert refused.value.reason.what == fault


def test_a_taint_encodes_its_time_only_where_it_is_known():
    """The API server gives one to those that have none."""
    assert Taint("k", "v", "None").encode() == {"key": "k", "value": "v", "effect": "None"}
    assert Taint("k", "v", "None", THEN).encode()["timeAdded"] == THEN


# On an API server.

PATIENT = Settings(leader_election=False, stale_seconds=600)


def ailing(*ailments):
    return a_machine(2, gpus=(a_gpu(0x10, ailments=ailments), a_gpu(0x20)))


@pytest.fixture
def town():
    with a_town() as made:
        yield made


def stored(town):
    return [
        [(taint["key"], taint["value"], taint["timeAdded"]) for taint in device.get("taints", ())]
        for obj in town.slices()
        for device in obj["spec"]["devices"]
    ]


def test_ailments_come_and_go_in_place(town):
    """One write each; the slice stays, a second ailment leaves the first one's time, an unreachable plugin leaves both."""
    owner = town.node()
    with a_controller(town, PATIENT):
        town.plugin(owner, ailing())
        town.wait(lambda: stored(town) == [[], []])
        (before,) = town.slices()
        town.report(owner, ailing(OFF))
        town.wait(lambda: stored(town) == [[("lanewise.dev/lost", "off-the-bus", THEN)], []])
        town.report(owner, ailing(OFF, xid(48, LATER)))
        both = [("lanewise.dev/lost", "off-the-bus", THEN), ("lanewise.dev/xid", "48", LATER)]
        town.wait(lambda: stored(town) == [both, []])
        town.register(owner.name, registered=False)
        town.wait(lambda: all(len(taints) > count for taints, count in zip(stored(town), (2, 0), strict=True)))
        assert stored(town)[0][1:] == both
        town.register(owner.name)
        town.wait(lambda: stored(town) == [both, []])
        town.wait(lambda: town.api.store.get("nodeinventories", "node-a")["status"]["published"]["ailing"] == 1)
        town.report(owner, ailing())
        town.wait(lambda: stored(town) == [[], []])
        (after,) = town.slices()
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert after["spec"]["pool"]["generation"] == before["spec"]["pool"]["generation"]


def test_a_taint_that_the_server_did_not_take_is_tried_again(town):
    """Case J3 (dra-driver-nvidia-gpu #904): a 500 once is no healthy device."""
    owner = town.node()
    with a_controller(town, PATIENT):
        town.plugin(owner, ailing())
        town.wait(lambda: stored(town) == [[], []])
        town.api.faults.fail(500, times=1, method="PUT", path="/apis/resource.k8s.io")
        town.report(owner, ailing(OFF))
        town.wait(lambda: stored(town) == [[("lanewise.dev/lost", "off-the-bus", THEN)], []], SECONDS)


def test_the_first_slice_has_the_taint_already(town):
    """A GPU that ailed before it was ever published (D6 of NVIDIA's driver: the first publication forgets)."""
    owner = town.node()
    with a_controller(town, PATIENT):
        town.plugin(owner, ailing(xid(48)))
        town.wait(lambda: stored(town) == [[("lanewise.dev/xid", "48", THEN)], []])
        (write,) = [request for request in town.writes() if "resourceslices" in request.path]
        assert write.method == "POST"


def test_a_controller_that_starts_anew_writes_nothing(town):
    """What ails is in the inventory, the time of its taint in the slice."""
    owner = town.node()
    with a_controller(town, PATIENT):
        town.plugin(owner, ailing(OFF))
        town.wait(lambda: bool(stored(town)) and bool(stored(town)[0]))
    with a_controller(town, PATIENT), town.pulse():
        town.api.forget_requests()
        town.report(owner, ailing(OFF, PENDING))
        town.wait(lambda: len(stored(town)[0]) == 2)
        assert [request.method for request in town.writes() if "resourceslices" in request.path] == ["PUT"]
        assert stored(town)[0][0] == ("lanewise.dev/lost", "off-the-bus", THEN)
