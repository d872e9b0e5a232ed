"""Single passes, with a clock of our own: what is asked, written and remembered."""

import pytest
from structlog.testing import capture_logs

from api.kube.errors import Conflict, Unavailable
from api.kube.paths import LEASES, SLICES
from controller.reconcile import FORGET_SECONDS, UNSEEN_SECONDS, Listening, Reconciler, lease_info
from controller.settings import Settings
from controller.state import NodeInfo, State
from tests.support.controlled_cluster import NAMESPACE, a_client, a_town
from tests.support.gpus import a_machine


class Desk:
    """A reconciler whose state is shown by hand what is in the store."""

    def __init__(self, town, client):
        self.town = town
        self.now = 1000.0
        self.listening = Listening()
        self.woken = []
        self.state = State(self.woken.append, lambda: self.now)
        self.state.inventories_listed()
        self.state.leases_listed()
        self.reconciler = Reconciler(
            client, self.state, Settings(), listening=lambda: self.listening, clock=lambda: self.now
        )
        self.owner = town.node()
        self.state.node_is(NodeInfo(self.owner.name, self.owner.uid))

    def show(self, *instances, slices=True):
        """What the watches deliver."""
        for instance in instances or ("i1",):
            lease = self.town.api.store.get("leases", f"lease-{instance}", NAMESPACE)
            if lease:
                self.state.lease_is(lease_info(lease))
        self.state.inventory_is(self.town.api.store.get("nodeinventories", "node-a"))
        for obj in self.town.slices() if slices else ():
            self.state.slice_is(obj)

    def look(self):
        return self.reconciler.reconcile("node-a")

    def requests(self):
        found = [(r.method, r.path) for r in self.town.api.requests if r.user_agent == "controller"]
        self.town.api.forget_requests()
        return found


@pytest.fixture
def desk():
    with a_town() as town, a_client(town.api, "controller") as client:
        desk = Desk(town, client)
        town.plugin(desk.owner, a_machine(2))
        desk.show()
        yield desk


def test_a_pass_is_one_sentence_and_a_second_one_does_nothing(desk):
    """Also before any watch has shown what was written."""
    assert desk.look().text == "node-a: 2 GPUs published (slices: 1 created)"
    desk.requests()
    assert desk.look().text == "node-a: 2 GPUs published"
    assert desk.requests() == []


def test_a_sentence_is_logged_when_it_changes(desk):
    """Not at every look."""
    with capture_logs() as logs:
        for _ in range(3):
            desk.look()
    assert [entry["outcome"] for entry in logs if entry["event"] == "node reconciled"] == [
        "node-a: 2 GPUs published (slices: 1 created)",
        "node-a: 2 GPUs published",
    ]


def test_a_slice_that_no_watch_shows_is_asked_for(desk):
    """Wiped while the watch was down, say: after a minute we look, and wait for a newer sign of life."""
    desk.look()
    desk.town.wipe()
    desk.now += UNSEEN_SECONDS + 1
    desk.town.renew()
    desk.show(slices=False)
    assert desk.look().reason == "Withdrawn"
    desk.now += 10
    desk.town.renew()
    desk.show()
    assert desk.look().text == "node-a: 2 GPUs published (slices: 1 created)"


def test_an_answered_wipe_is_over(desk):
    """Published again after it, then silent: tainted in place and not withdrawn."""
    desk.look()
    desk.town.wipe()
    desk.show()
    for obj in desk.state.slices("node-a"):
        desk.state.slice_gone(obj)
    assert desk.look().reason == "Withdrawn"
    desk.now += 10
    desk.town.renew()
    desk.show()
    assert desk.look().created == 1
    desk.show()
    desk.now += 40
    assert desk.look().text == (
        "node-a: 2 GPUs tainted NoSchedule: the plugin does not renew its Lease; running pods are not touched "
        "(slices: 1 updated)"
    )


def test_a_conflict_is_looked_at_and_the_next_pass_is_right(desk):
    """Somebody wrote first, and the watch is behind."""
    desk.look()
    (obj,) = desk.town.slices()
    obj["spec"]["devices"].pop()
    desk.town.client.replace(SLICES.path(name=obj["metadata"]["name"]), obj)
    desk.town.report(desk.owner, a_machine(3))
    desk.show(slices=False)
    with pytest.raises(Conflict):
        desk.look()
    assert desk.look().text == "node-a: 3 GPUs published (slices: 1 updated)"
    assert len(desk.town.devices()) == 3


def test_own_deletions_are_not_taken_for_the_kubelets(desk):
    """A rival comes and goes: published again at once, without waiting for a sign of life."""
    desk.look()
    desk.show()
    slices = desk.town.slices()
    desk.state.node_is(NodeInfo("node-a", desk.owner.uid, {"nvidia.com/gpu": "2"}))
    assert desk.look().deleted == 1
    for obj in slices:
        desk.state.slice_gone(obj)
    desk.state.node_is(NodeInfo("node-a", desk.owner.uid))
    assert desk.look().created == 1


def test_nothing_is_written_while_the_watch_on_leases_is_down(desk):
    """And it is looked again soon."""
    desk.look()
    desk.show()
    desk.requests()
    desk.now += 1000
    desk.listening = Listening(deaf=True, outages=1)
    outcome = desk.look()
    assert (outcome.reason, outcome.look_again) == ("Waiting", desk.now + 5)
    assert desk.requests() == []


def test_marks_of_a_killed_plugin_are_taken_away_once_another_works(desk):
    """Its entry and its Lease would stay for ever; while nobody has taken its place they tell what happened."""
    desk.look()
    desk.now += FORGET_SECONDS + 1
    assert desk.look().reason == "NoLiveInstance"
    desk.town.plugin(desk.owner, a_machine(2), instance="i2")
    desk.show("i2")
    desk.look()
    status = desk.town.api.store.get("nodeinventories", "node-a")["status"]
    assert [entry["id"] for entry in status["instances"]] == ["i2"]
    assert status["conditions"]
    assert desk.town.api.store.get("leases", "lease-i1", NAMESPACE) is None
    desk.requests()
    desk.look()
    assert desk.requests() == []


def test_another_nodes_lease_is_not_taken_away(desk):
    """The entry of a dead instance may name any Lease, the controller's own too: only the node's are deleted."""
    desk.look()
    desk.now += FORGET_SECONDS + 1
    desk.town.renew("i1", "node-b")
    desk.town.plugin(desk.owner, a_machine(2), instance="i2")
    desk.show("i1", "i2")
    desk.look()
    desk.now += FORGET_SECONDS + 1
    desk.town.renew("i2")
    desk.show("i2")
    desk.look()
    status = desk.town.api.store.get("nodeinventories", "node-a")["status"]
    assert [entry["id"] for entry in status["instances"]] == ["i2"]
    assert desk.town.api.store.get("leases", "lease-i1", NAMESPACE) is not None


def test_a_deletion_that_failed_is_forgotten(desk):
    """The API server was away for a moment; what is published again meanwhile can be written as ever."""
    desk.look()
    desk.show()
    desk.state.node_is(NodeInfo("node-a", desk.owner.uid, {"nvidia.com/gpu": "2"}))
    desk.town.api.faults.fail(503, method="DELETE")
    with pytest.raises(Unavailable):
        desk.look()
    desk.state.node_is(NodeInfo("node-a", desk.owner.uid))
    for count in (3, 4):
        desk.town.report(desk.owner, a_machine(count))
        desk.show(slices=False)
        assert desk.look().text == f"node-a: {count} GPUs published (slices: 1 updated)"


def test_marks_are_taken_away_though_the_lease_went_first(desk):
    """Half of it was done when the API server went away; the rest is done later."""
    desk.look()
    desk.now += FORGET_SECONDS + 1
    desk.town.plugin(desk.owner, a_machine(2), instance="i2")
    desk.show("i2")
    desk.town.client.delete(LEASES.path(NAMESPACE, "lease-i1"))
    desk.look()
    status = desk.town.api.store.get("nodeinventories", "node-a")["status"]
    assert [entry["id"] for entry in status["instances"]] == ["i2"]


def test_nothing_is_remembered_of_nodes_that_are_gone(desk):
    """Clusters that grow and shrink have new names every day."""
    desk.look()
    desk.state.inventory_gone("node-a")
    desk.state.node_gone("node-a")
    assert desk.look().reason == "NoInventory"
    assert (desk.reconciler._said, desk.reconciler._adopted) == ({}, {})
