"""Every case of the table "When the kubelet deletes slices", with virtual time."""

import pytest

from controller.liveness import (
    Alive,
    Dead,
    Hold,
    NodeSigns,
    Publish,
    Signs,
    StayAway,
    TaintAll,
    Unsure,
    Withdraw,
    health_of,
    judge,
)
from tests.support.cluster_story import Story


def a_published_node() -> Story:
    story = Story()
    story.starts()
    assert story.look() == "clean"
    story.works(100)
    assert story.look() == "clean"
    return story


def test_a_new_node_is_published_at_once():
    """Its plugin is registered and has just written its Lease."""
    story = Story()
    story.starts()
    assert story.look() == "clean"


def test_renewals_by_another_node_keep_nobody_alive():
    """The Lease in this node's inventory is held by another: the plugin is as good as silent."""
    story = a_published_node()
    for _ in range(5):
        story.after(10).renews(holder="node-b")
    assert story.look() == "tainted silent"


def test_a_plugin_that_is_not_registered_yet_waits_for_the_kubelet():
    """Alive is not enough: the kubelet could not call it."""
    story = Story()
    story.starts(registered=False)
    assert story.look() == "none"
    story.registers()
    assert story.look() == "clean"


def test_kubelet_restarted():
    """Its start deletes all slices just before it registers the plugin: they are back with the registration."""
    story = a_published_node()
    story.registers(registered=False)  # the health stream closed 40 ms after the kubelet stopped
    assert story.look() == "tainted unregistered"
    story.after(3).wipe()
    assert story.look() == "none"
    story.after(0.005).registers()
    assert story.look() == "clean"


def test_kubelet_restarted_and_the_registration_is_seen_first():
    """Two watches keep no order: then the next renewal brings the slices back."""
    story = a_published_node()
    story.registers(registered=False)
    story.look()
    story.registers()
    assert story.look() == "clean"
    story.after(0.005).wipe()
    assert story.look() == "none"
    story.after(10).renews()
    assert story.look() == "clean"


def test_plugin_killed():
    """Deleted at 30 s; a Lease that is not stale yet is no newer sign, so nothing comes back until the plugin does."""
    story = a_published_node()
    story.after(29)
    assert story.look() == "clean"
    story.after(1).wipe()
    assert story.look() == "none"
    for _ in range(100):
        assert story.after(3).look() == "none"
    story.starts("i2")
    assert story.look() == "clean"


def test_plugin_killed_and_the_kubelet_forgets_to_delete():
    """After 40 s without renewal the devices are tainted in place, clean when somebody is back."""
    story = a_published_node()
    assert story.after(39.9).look() == "clean"
    assert story.after(0.1).look() == "tainted silent"
    assert story.after(1000).look() == "tainted silent"
    story.starts("i2")
    assert story.look() == "clean"


def test_plugin_stopped_as_told_to():
    """It withdraws nothing; nobody is registered then, so pods must not come."""
    story = a_published_node()
    story.stops()
    assert story.look() == "tainted unregistered"
    story.after(30).wipe()
    assert story.look() == "none"


def test_plugin_back_after_ten_seconds():
    """The kubelet deletes nothing; the slices were never touched."""
    story = a_published_node()
    assert story.after(9).look() == "clean"
    story.after(1).starts("i2")
    assert story.look() == "clean"


def test_rolling_update():
    """The new one is there before the old one goes: nothing changes at any moment."""
    story = a_published_node()
    story.starts("i2", registered=False)
    assert story.look() == "clean"
    story.registers("i2")
    assert story.look() == "clean"
    story.stops("i1")
    assert story.look() == "clean"
    story.works(100, "i2")
    assert story.look() == "clean"


def test_plugin_frozen():
    """Registered and silent: tainted; clean as soon as it goes on."""
    story = a_published_node()
    assert story.after(40).look() == "tainted silent"
    story.after(10).renews()
    assert story.look() == "clean"


def test_registration_socket_removed_under_a_live_plugin():
    """The kubelet lets go without a word, the health stream closes, the deletion comes 30 s later."""
    story = a_published_node()
    story.registers(registered=False)
    assert story.look() == "tainted unregistered"
    story.works(30)
    story.wipe()
    assert story.look() == "none"
    story.works(60)
    assert story.look() == "none"
    story.registers()
    assert story.look() == "clean"


def test_deletion_that_comes_late():
    """The API server was down when it was due: the plugin is back already, and its next renewal is newer."""
    story = a_published_node()
    story.starts("i2")
    assert story.look() == "clean"
    story.after(5.8).wipe()
    assert story.look() == "none"
    story.after(4.2).renews("i2")
    assert story.look() == "clean"


def test_reboot():
    """The kubelet deletes at its start; the plugin of before says it is registered, but it is dead."""
    story = a_published_node()
    story.after(25).wipe()
    assert story.look() == "none"
    assert story.after(100).look() == "none"
    story.starts("i2", registered=False)
    assert story.look() == "none"
    story.registers("i2")
    assert story.look() == "clean"


def test_somebody_deletes_slices_by_hand():
    """Case I10: the plugin is well, so they come back with its next renewal."""
    story = a_published_node()
    story.wipe()
    assert story.look() == "none"
    story.after(10).renews()
    assert story.look() == "clean"


def test_devices_tainted_once_stay_after_a_deletion_was_answered():
    """An answered deletion is over: when the plugin dies later its devices are tainted, not withdrawn."""
    story = a_published_node()
    story.wipe()
    story.after(10).renews()
    assert story.look() == "clean"
    story.stops()
    assert story.look() == "tainted unregistered"


def test_fresh_controller_finds_slices_and_a_dead_plugin():
    """Nothing is known of the Lease's age: hold for 40 s, then taint."""
    story = Story(listed=False)
    story.starts()
    story.slices = [{"metadata": {"name": "s", "uid": "s0", "resourceVersion": "1"}, "spec": a_spec()}]
    story.state.slice_is(story.slices[0])
    story.listed()
    assert story.decide().slices is None
    assert story.after(39).decide().slices is None
    assert story.after(1).look() == "tainted silent"


def a_spec():
    pool = {"name": "node-a/gpu.lanewise.dev", "generation": 1, "resourceSliceCount": 1}
    return {"driver": "gpu.lanewise.dev", "nodeName": "node-a", "pool": pool, "devices": [{"name": "gpu-10-00-0"}]}


def test_fresh_controller_finds_no_slices_of_a_live_plugin():
    """They may have been deleted while nobody looked: published with the first renewal that it sees."""
    story = Story(listed=False)
    story.starts()
    story.listed()
    assert story.look() == "none"
    story.after(10).renews()
    assert story.look() == "clean"


def test_fresh_controller_finds_no_slices_of_a_dead_plugin():
    """The inventory says registered, for ever; nothing is published on its word."""
    story = Story(listed=False)
    story.starts()
    story.listed()
    for _ in range(20):
        assert story.after(5).look() == "none"


def test_the_watch_was_down_and_nobody_is_called_silent_for_that():
    """What was not heard is not silence: ages are unknown again, hold until renewed or 40 s have passed."""
    story = a_published_node()
    story.after(35).state.listen(deaf=True, outages=1)
    assert story.decide().slices is None
    story.after(100).state.listen(deaf=True, outages=2)
    assert story.decide().slices is None
    story.state.listen(deaf=False, outages=2)
    assert story.decide().slices is None
    assert story.after(39).decide().slices is None
    story.renews()
    assert story.look() == "clean"
    story.state.listen(deaf=False, outages=3)
    assert story.after(40).look() == "tainted silent"


def test_a_lease_that_the_watch_has_not_shown_yet():
    """Registered, but its Lease is unknown: neither published nor tainted for 40 s."""
    story = a_published_node()
    story.stops()
    story.registers("i2")
    assert story.decide().slices is None
    assert story.after(40).look() == "tainted silent"


def test_a_published_node_is_not_looked_at_for_every_renewal():
    """1000 nodes renew 100 times a second; only a node that waits for a sign is woken by one."""
    story = a_published_node()
    story.state.settle("node-a", settled=True)
    story.woken.clear()
    story.after(10).renews()
    assert story.woken == []
    story.wipe()
    story.woken.clear()
    story.after(10).renews()
    assert story.woken == ["node-a"]


def test_never_no_execute():
    """Running pods are fine, and under a dead plugin they could not even be cleaned up."""
    story = a_published_node()
    story.after(1000).look()
    effects = {
        taint["effect"] for obj in story.slices for device in obj["spec"]["devices"] for taint in device["taints"]
    }
    assert effects == {"NoSchedule"}


@pytest.mark.parametrize(
    ("health", "signs", "verdict"),
    [
        (Alive(50, 9), NodeSigns((), True), Publish()),
        (Alive(50, 9), NodeSigns((), False), Publish()),
        (Alive(50, 9), NodeSigns((), False, wiped_at=8), Publish()),
        (Alive(50, 9), NodeSigns((), False, wiped_at=9), Withdraw()),
        (Alive(50, 9), NodeSigns((), True, wiped_at=10), Withdraw()),
        (Unsure(50), NodeSigns((), True), Hold()),
        (Unsure(50), NodeSigns((), False), Hold()),
        (Unsure(50), NodeSigns((), False, wiped_at=8), Withdraw()),
        (Dead("silent"), NodeSigns((), True), TaintAll("silent")),
        (Dead("silent"), NodeSigns((), False), StayAway("silent")),
        (Dead("silent"), NodeSigns((), True, wiped_at=8), Withdraw()),
    ],
)
def test_the_table(health, signs, verdict):
    """Each cell."""
    assert judge(signs, health) == verdict


def test_one_live_instance_is_enough():
    """The dead ones of before do not matter, and the newest Lease says when to look again."""
    dead = Signs("old", registered=True, heard_at=0, certain=True, sign_at=0)
    waiting = Signs("new", registered=False, heard_at=95, certain=True, sign_at=95)
    alive = Signs("now", registered=True, heard_at=90, certain=True, sign_at=91)
    assert health_of((dead, waiting, alive), 100, 40) == Alive(until=130, sign_at=91)
    assert health_of((dead, waiting), 100, 40) == Dead("silent")
    assert health_of((waiting,), 100, 40) == Dead("unregistered")
    assert health_of((), 100, 40) == Dead("unregistered")
