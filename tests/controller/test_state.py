"""What the controller has seen."""

import pytest

from controller.conflicts import ForeignSlice
from controller.signs import LeaseInfo
from controller.state import NodeInfo, State
from tests.support.gpus import an_instance, an_inventory


@pytest.fixture
def seen():
    woken = []
    state = State(woken.append, lambda: 50.0)
    state.inventories_listed()
    state.leases_listed()
    return state, woken


def a_slice(version=1, uid="s1"):
    spec = {"driver": "gpu.lanewise.dev", "nodeName": "node-a", "pool": {"name": "node-a/gpu.lanewise.dev"}}
    return {"metadata": {"name": uid, "uid": uid, "resourceVersion": str(version)}, "spec": spec}


def wiped(state):
    return state.facts("node-a").signs.wiped_at is not None


def test_older_versions_do_not_replace_newer_ones(seen):
    """Our own write is known before the watch shows it, and the watch is behind."""
    state, _ = seen
    state.written(a_slice(7))
    state.slice_is(a_slice(5))
    assert state.slices("node-a") == (a_slice(7),)


def test_own_deletions_are_no_wipe(seen):
    """Whichever comes first, the watch's event or the answer."""
    state, _ = seen
    for late in (True, False):
        state.slice_is(a_slice(uid=f"s{late}"))
        state.deleting(f"s{late}")
        if late:
            state.deleted(a_slice(uid=f"s{late}"))
        state.slice_gone(a_slice(uid=f"s{late}"))
        assert not wiped(state)
    assert state.slices("node-a") == ()


def test_a_late_answer_does_not_bring_a_deleted_slice_back(seen):
    """Created, seen, wiped, and only then answered."""
    state, _ = seen
    state.slice_is(a_slice())
    state.slice_gone(a_slice())
    assert wiped(state)
    state.written(a_slice())
    assert state.slices("node-a") == ()


def test_a_deletion_that_did_not_happen_is_somebody_elses_later(seen):
    """A conflict: the slice is still there, and the kubelet's deletion afterwards counts."""
    state, _ = seen
    state.slice_is(a_slice())
    state.deleting("s1")
    state.not_deleted("s1")
    state.slice_gone(a_slice())
    assert wiped(state)


def test_what_no_watch_has_shown_is_remembered(seen):
    """So that it can be asked for."""
    state, _ = seen
    state.written(a_slice())
    assert state.unseen("node-a", before=50.0) == ()
    assert state.unseen("node-a", before=51.0) == (a_slice(),)
    state.slice_is(a_slice())
    assert state.unseen("node-a", before=51.0) == ()


def test_a_node_that_looks_the_same_wakes_nobody(seen):
    """Node status changes every few minutes."""
    state, woken = seen
    state.inventory_is(an_inventory())
    woken.clear()
    state.node_is(NodeInfo("node-a", "u", {"nvidia.com/gpu": "1"}))
    state.node_is(NodeInfo("node-a", "u", {"nvidia.com/gpu": "1"}))
    assert woken == ["node-a"]


def test_nodes_without_gpus_wake_nobody(seen):
    """Most nodes of a cluster: no inventory, nothing of ours, nothing to do."""
    state, woken = seen
    state.node_is(NodeInfo("node-b", "u"))
    state.foreign_is("a", ForeignSlice("a", "d", "node-b", 1), None)
    state.node_gone("node-b")
    assert woken == []


def test_foreign_slices_wake_their_nodes(seen):
    """Those of no node concern all that have an inventory."""
    state, woken = seen
    state.inventory_is(an_inventory())
    woken.clear()
    here, nowhere = ForeignSlice("a", "d", "node-a", 1), ForeignSlice("b", "d", None, 1)
    state.foreign_is("a", here, None)
    state.foreign_is("b", nowhere, None)
    assert woken == ["node-a", "node-a"]
    assert set(state.facts("node-a").foreign) == {here, nowhere}
    state.foreign_is("a", None, here)
    assert state.facts("node-a").foreign == (nowhere,)


def test_an_inventory_that_cannot_be_read_is_told(seen):
    """And nothing of the older one is believed."""
    state, _ = seen
    state.inventory_is(an_inventory(version="1"))
    bad = an_inventory(version="2")
    bad["spec"]["gpus"][0]["pciAddress"] = "here"
    state.inventory_is(bad)
    facts = state.facts("node-a")
    assert facts.inventory is None
    assert "'here' is no PCI address" in facts.fault
    state.inventory_is(an_inventory(version="3"))
    assert state.facts("node-a").fault == ""


def test_leases_of_gone_inventories_wake_nobody(seen):
    """Instances come and go for ever; their names are forgotten."""
    state, woken = seen
    state.inventory_is(an_inventory(instances=(an_instance("i1"),), version="1"))
    state.inventory_is(an_inventory(instances=(an_instance("i2"),), version="2"))
    woken.clear()
    state.lease_is(LeaseInfo("lease-i1", "1", "node-a"))
    assert woken == []
    state.lease_is(LeaseInfo("lease-i2", "1", "node-a"))
    assert woken == ["node-a"]
    state.inventory_gone("node-a")
    woken.clear()
    state.lease_is(LeaseInfo("lease-i2", "2", "node-a"))
    assert woken == []


def test_a_slice_that_survived_our_deletion_is_kept_up_to_date(seen):
    """The deletion failed, then the node was published again: the watch and our own writes count as before."""
    state, _ = seen
    state.slice_is(a_slice(1))
    state.deleting("s1")
    state.not_deleted("s1")
    state.slice_is(a_slice(2))
    state.written(a_slice(3))
    assert state.slices("node-a") == (a_slice(3),)


def test_a_wipe_that_is_seen_twice_happened_once():
    """Found missing by asking, answered, and then shown by a watch that is far behind."""
    now = [50.0]
    state = State(lambda _: None, lambda: now[0])
    state.slice_is(a_slice())
    state.slice_gone(a_slice())
    state.republished("node-a", 50.0)
    now[0] = 60.0
    state.slice_gone(a_slice())
    assert not wiped(state)


def test_a_late_answer_does_not_bring_a_deleted_inventory_back(seen):
    """Its status was written, it was deleted and seen to be, and only then comes our answer."""
    state, _ = seen
    state.inventory_is(an_inventory(version="1"))
    state.inventory_written(an_inventory(version="2"))
    assert state.inventory_object("node-a")["metadata"]["resourceVersion"] == "2"
    state.inventory_gone("node-a")
    state.inventory_written(an_inventory(version="3"))
    assert state.inventory_object("node-a") is None


def test_what_an_older_look_at_the_watch_says_changes_nothing(seen):
    """Passes run side by side, and the slower one may tell last."""
    state, _ = seen
    state.inventory_is(an_inventory(instances=(an_instance("i1"),)))
    state.listen(deaf=False, outages=2)
    state.lease_is(LeaseInfo("lease-i1", "1", "node-a"))
    state.listen(deaf=False, outages=1)
    state.listen(deaf=False, outages=2)
    (signs,) = state.facts("node-a").signs.instances
    assert signs.certain


def test_another_nodes_lease_is_no_sign_of_life(seen):
    """An inventory that lists a Lease which another node holds: neither fresh, nor that node's wake-up call."""
    state, woken = seen
    state.inventory_is(an_inventory("node-a", instances=(an_instance("i1"),)))
    state.inventory_is(an_inventory("node-b", instances=(an_instance("i1"),)))
    woken.clear()
    state.lease_is(LeaseInfo("lease-i1", "1", "node-a"))
    assert woken == ["node-a"]
    assert [state.facts(node).signs.instances[0].certain for node in ("node-a", "node-b")] == [True, False]
    assert state.lease_holder("lease-i1") == "node-a"
    state.lease_gone("lease-i1")
    assert woken == ["node-a", "node-a"]


def test_a_lease_that_changes_hands_is_heard_of(seen):
    """Written by hand, say; the same renewal by another holder is another Lease."""
    state, _ = seen
    state.inventory_is(an_inventory(instances=(an_instance("i1"),)))
    assert state.lease_is(LeaseInfo("lease-i1", "1", "node-b"))
    assert state.lease_is(LeaseInfo("lease-i1", "1", "node-a"))
    assert not state.lease_is(LeaseInfo("lease-i1", "1", "node-a"))
    assert state.facts("node-a").signs.instances[0].certain
