"""What Prometheus reads of the controller."""

import pytest

from api.kube.errors import Unavailable
from api.kube.reflector import State as WatchState
from controller.metrics import FAMILIES, Metrics
from controller.reconcile import Reconciler, lease_info
from controller.settings import Settings
from controller.state import NodeInfo, State
from tests.support.cluster_story import Story
from tests.support.controlled_cluster import NAMESPACE, a_client, a_town
from tests.support.gpus import a_machine
from tests.support.scraping import series, undeclared, values


class Term:
    """A controller that leads, for as long as nobody looks closer."""

    def __init__(self, silences=None):
        self.silent = silences or {}

    def watched(self):
        return {
            "nodes": WatchState(synced=True, outages=2),
            "resourceslices": WatchState(synced=True, last_error="connection refused", outages=5),
        }

    def silences(self):
        return self.silent


@pytest.fixture
def metrics():
    made = Metrics()
    made.begin(Term({"node-a": 3.5}))
    return made


def test_a_replica_that_waits_tells_nothing_of_nodes(metrics):
    """What it knew when it led is not so any more, and the other replica tells the same series."""
    metrics.decided("node-a", Story().decide(), 0)
    assert values(metrics.page, "lanewise_leader") == {(): 1}
    metrics.end()
    assert values(metrics.page, "lanewise_leader") == {(): 0}
    names = {name for name, _ in series(metrics.page)}
    assert not names & {"lanewise_node_published", "lanewise_watch_open", "lanewise_inventory_age_seconds"}


def test_watches_by_resource(metrics):
    """Whether each is open, and how often it broke."""
    assert values(metrics.page, "lanewise_watch_open") == {("nodes",): 1, ("resourceslices",): 0}
    assert values(metrics.page, "lanewise_watch_restarts_total") == {("nodes",): 2, ("resourceslices",): 5}


def test_a_node_is_told_by_condition_and_devices(metrics):
    """Published, then tainted when its plugin is silent, then forgotten when its inventory is gone."""
    story = Story()
    story.starts()
    metrics.decided("node-a", story.decide(), 1)
    assert values(metrics.page, "lanewise_node_published") == {("node-a", "Published"): 1}
    states = {("node-a", "allocatable"): 2, ("node-a", "tainted"): 0, ("node-a", "left_out"): 1}
    assert values(metrics.page, "lanewise_node_devices") == states
    story.look()
    story.after(100)
    metrics.decided("node-a", story.decide(), 1)
    assert values(metrics.page, "lanewise_node_published") == {("node-a", "NoLiveInstance"): 0}
    assert values(metrics.page, "lanewise_node_devices") == states | {
        ("node-a", "allocatable"): 0,
        ("node-a", "tainted"): 2,
    }
    story.state.inventory_gone("node-a")
    metrics.decided("node-a", story.decide(), 0)
    assert values(metrics.page, "lanewise_node_published") == values(metrics.page, "lanewise_node_devices") == {}


def test_the_age_is_that_of_the_newest_sign():
    """Two instances in an update; a node without any has none."""
    story = Story()
    story.starts("i1")
    story.after(30)
    story.starts("i2")
    story.after(5)
    assert story.state.silences() == {"node-a": 5}
    story.stops("i2")
    assert story.state.silences() == {"node-a": 35}
    story.stops("i1")
    assert story.state.silences() == {}


def test_slices_are_counted_when_they_are_written():
    """Not when they are planned: what the API server refused was not written. A pass that failed is told as one."""
    metrics = Metrics()
    with a_town() as town, a_client(town.api, "controller") as client:
        owner = town.node()
        state = State(lambda _: None)
        state.inventories_listed()
        state.leases_listed()
        state.node_is(NodeInfo(owner.name, owner.uid))
        town.plugin(owner, a_machine(2))
        lease = town.api.store.get("leases", "lease-i1", NAMESPACE)
        reconciler = Reconciler(client, state, Settings(), observer=metrics)
        state.lease_is(lease_info(lease))
        state.inventory_is(town.api.store.get("nodeinventories", "node-a"))
        town.api.faults.fail(503, times=1, method="POST", path="/apis/resource.k8s.io")
        with pytest.raises(Unavailable):
            reconciler.reconcile("node-a")
        assert values(metrics.page, "lanewise_slices_written_total") == {("create",): 0, ("update",): 0, ("delete",): 0}
        assert reconciler.reconcile("node-a").created == 1
        assert values(metrics.page, "lanewise_slices_written_total")[("create",)] == 1
        state.inventory_gone("node-a")
        reconciler.reconcile("node-a")
    assert values(metrics.page, "lanewise_slices_written_total") == {("create",): 1, ("update",): 0, ("delete",): 1}
    assert values(metrics.page, "lanewise_reconcile_seconds_count") == {("done",): 2, ("failed",): 1}


def test_every_series_is_declared(metrics):
    """Docs, alerts and dashboard are held against the declarations."""
    story = Story()
    story.starts()
    metrics.decided("node-a", story.decide(), 0)
    metrics.requested("WATCH", "200")
    assert undeclared(metrics.page, FAMILIES) == set()
    seen = {name for name, _ in series(metrics.page)}
    assert [f.name for f in FAMILIES if f.kind != "histogram" and f.name not in seen] == []


def test_series_are_bounded_by_nodes(metrics):
    """However often each is looked at, and whatever became of it meanwhile."""
    story = Story()
    story.starts()
    for _ in range(3):
        for number in range(50):
            metrics.decided(f"node-{number}", story.decide(), 0)
        counted = len(series(metrics.page))
    assert len(values(metrics.page, "lanewise_node_published")) == 50
    for number in range(50):
        metrics.decided(f"node-{number}", Story().decide(), 0)
    assert len(series(metrics.page)) == counted - 50 * 4
