"""What the plugin tells the cluster, against an API server: inventory, entry and Lease, through losses and outages."""

from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs

from api.hardware import Machine
from api.inventory import decode
from api.kube.backoff import Backoff
from api.kube.paths import LEASES, NODE_INVENTORIES, NODES
from kubeletplugin.report import LEASE_SECONDS, RENEW_SECONDS, REPEAT_SECONDS, Reporter
from tests.support.controlled_cluster import NAMESPACE, a_client, a_town
from tests.support.gpus import a_machine

START = datetime(2026, 11, 30, 10, 0, 0, tzinfo=UTC)
NODE = "node-a"
LEASE = LEASES.path(NAMESPACE, "lanewise-node-i1")
INVENTORY = NODE_INVENTORIES.path(name=NODE)
STATUS = NODE_INVENTORIES.path(name=NODE, subresource="status")


@pytest.fixture
def town():
    with a_town() as town:
        yield town


class Desk:
    """One plugin instance's Reporter, with hands on its clock; no thread runs."""

    def __init__(self, town, client, instance="i1"):
        self.town = town
        self.now = 100.0
        self.reporter = Reporter(
            client,
            node=NODE,
            namespace=NAMESPACE,
            instance=instance,
            version="0.1.0",
            clock=lambda: self.now,
            wall=lambda: START + timedelta(seconds=self.now),
            backoff=Backoff(clock=lambda: self.now, chance=lambda: 0.5),
        )

    def step(self, after=0.0):
        """One step; its requests as (method, path), and the pause it asks for."""
        self.now += after
        self.town.api.forget_requests()
        pause = self.reporter.step()
        return [(request.method, request.path) for request in self.town.api.requests], pause


@pytest.fixture
def desk(town):
    with a_client(town.api, "reporter") as client:
        yield Desk(town, client)


@pytest.fixture
def busy(town, desk):
    """A desk whose node exists, with everything reported."""
    town.node()
    desk.reporter.found(a_machine(2))
    desk.reporter.registered(True)
    desk.step()
    return desk


def lease(town, instance="i1"):
    return town.api.store.get("leases", f"lanewise-node-{instance}", NAMESPACE)


def inventory(town):
    obj = town.api.store.get("nodeinventories", NODE)
    return None if obj is None else decode(obj)


def registered(town):
    return {entry.id: entry.registered for entry in inventory(town).instances}


def test_a_sign_of_life_goes_first(town, desk):
    """The controller reads an entry with the Lease it names: Lease, then what was found, then who publishes it."""
    town.node()
    desk.reporter.found(a_machine(2))
    desk.reporter.registered(True)
    requests, pause = desk.step()
    assert requests == [
        ("GET", NODES.path(name=NODE)),
        ("PATCH", LEASE),
        ("PATCH", INVENTORY),
        ("PATCH", STATUS),
    ]
    assert pause == RENEW_SECONDS


def test_what_is_written(town, busy):
    """The node's inventory, an entry in its status, and a Lease held by the node; all owned by the Node."""
    uid = town.api.store.get("nodes", NODE)["metadata"]["uid"]
    found = inventory(town)
    assert found.machine == a_machine(2)
    assert found.node_uid == uid
    (entry,) = found.instances
    assert (entry.id, entry.registered, entry.lease, entry.version) == ("i1", True, "lanewise-node-i1", "0.1.0")
    assert entry.registered_at == "2026-11-30T10:01:40Z"
    spec = lease(town)["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == (NODE, LEASE_SECONDS)
    assert spec["renewTime"] == "2026-11-30T10:01:40.000000Z"
    assert [owner["uid"] for owner in lease(town)["metadata"]["ownerReferences"]] == [uid]


def test_before_hardware_is_known_there_is_only_the_lease(town, desk):
    """An inventory that says "no GPU" while nobody has looked would be believed."""
    town.node()
    requests, _ = desk.step()
    assert requests == [("GET", NODES.path(name=NODE)), ("PATCH", LEASE)]
    assert inventory(town) is None


def test_nothing_changed_is_nothing_written_but_the_lease(busy):
    """The same machine and the same registration, however often they are said."""
    busy.reporter.found(a_machine(2))
    busy.reporter.registered(True)
    assert busy.step()[0] == []
    assert busy.step(after=RENEW_SECONDS - 0.1)[0] == []
    assert busy.step(after=0.1)[0] == [("PATCH", LEASE)]


def test_the_lease_is_renewed_and_the_time_in_it_moves(town, busy):
    """Each renewal is a change that a watch sees."""
    before = lease(town)["spec"]["renewTime"]
    busy.step(after=RENEW_SECONDS)
    assert lease(town)["spec"]["renewTime"] == "2026-11-30T10:01:50.000000Z" != before


def test_changed_hardware_is_written_at_once(town, busy):
    """And the entry again, since the two are written apart and somebody may have deleted both."""
    busy.reporter.found(a_machine(3))
    assert busy.step()[0] == [("PATCH", INVENTORY), ("PATCH", STATUS)]
    assert len(inventory(town).machine.gpus) == 3
    assert registered(town) == {"i1": True}


def test_changed_registration_is_written_at_once_with_a_sign_of_life(town, busy):
    """The controller acts on it only when the Lease is renewed, so it is."""
    busy.now += 1
    busy.reporter.registered(False)
    assert busy.step()[0] == [("PATCH", LEASE), ("PATCH", STATUS)]
    assert registered(town) == {"i1": False}
    (entry,) = inventory(town).instances
    assert entry.registered_at == "2026-11-30T10:01:41Z"


def test_an_inventory_that_somebody_deleted_comes_back(town, busy):
    """Nobody watches it from here; it is applied again every ten minutes."""
    town.client.delete(INVENTORY)
    busy.step(after=RENEW_SECONDS)
    assert inventory(town) is None
    requests, _ = busy.step(after=REPEAT_SECONDS)
    assert requests == [("PATCH", LEASE), ("PATCH", INVENTORY), ("PATCH", STATUS)]
    assert inventory(town).machine == a_machine(2)
    assert registered(town) == {"i1": True}


def test_repeating_what_is_there_changes_nothing_there(town, busy):
    """An apply without effect has no new resourceVersion, so no watch is woken."""
    before = town.api.store.get("nodeinventories", NODE)["metadata"]["resourceVersion"]
    assert ("PATCH", INVENTORY) in busy.step(after=REPEAT_SECONDS)[0]
    assert town.api.store.get("nodeinventories", NODE)["metadata"]["resourceVersion"] == before


def test_a_lease_deleted_by_somebody_begins_all_anew(town, busy):
    """With the next renewal: new Lease, the owner asked for again, inventory and entry written."""
    town.client.delete(LEASE)
    town.client.delete(INVENTORY)
    requests, _ = busy.step(after=RENEW_SECONDS)
    assert requests == [
        ("PATCH", LEASE),
        ("GET", NODES.path(name=NODE)),
        ("PATCH", INVENTORY),
        ("PATCH", STATUS),
    ]
    assert registered(town) == {"i1": True}
    assert busy.step()[0] == []


def test_a_node_made_anew_owns_everything_again(town, busy):
    """The Node was deleted, and what it owned went with it; the new one has another UID."""
    town.client.delete(NODES.path(name=NODE))
    assert lease(town) is None
    assert inventory(town) is None
    again = town.node()
    busy.step(after=RENEW_SECONDS)
    busy.step()
    assert [owner["uid"] for owner in lease(town)["metadata"]["ownerReferences"]] == [again.uid]
    found = inventory(town)
    assert found.node_uid == again.uid
    assert found.machine == a_machine(2)
    assert registered(town) == {"i1": True}
    assert busy.step()[0] == []


def test_a_node_that_is_not_there_yet_is_waited_for(town, desk):
    """The plugin may be quicker than the kubelet's own registration of the Node."""
    desk.reporter.found(a_machine(2))
    requests, pause = desk.step()
    assert requests == [("GET", NODES.path(name=NODE))]
    assert 0 < pause < RENEW_SECONDS
    assert "node-a" in desk.reporter.last_error
    town.node()
    desk.step(after=pause)
    assert desk.reporter.last_error is None
    assert inventory(town) is not None


def test_an_api_server_that_is_away_is_asked_ever_less_often(town, busy):
    """Each failure doubles the pause; when it is back, all that changed meanwhile is said, and the pause is the usual."""
    with town.api.outage(), capture_logs() as logs:
        busy.reporter.found(a_machine(3))
        busy.reporter.registered(False)
        pauses = []
        for _ in range(8):
            pauses.append(busy.step(after=pauses[-1] if pauses else 0)[1])
        assert pauses == sorted(pauses)
        assert pauses[0] < 2 < pauses[-1] <= 60
        assert "connection refused" in busy.reporter.last_error
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == ["report delayed"]
    requests, pause = busy.step(after=pauses[-1])
    assert requests == [("PATCH", LEASE), ("PATCH", INVENTORY), ("PATCH", STATUS)]
    assert pause == RENEW_SECONDS
    assert busy.reporter.last_error is None
    assert len(inventory(town).machine.gpus) == 3
    assert registered(town) == {"i1": False}


@pytest.mark.parametrize("failing", [LEASE, INVENTORY, STATUS])
def test_a_write_that_fails_is_made_up_for(town, desk, failing):
    """Whichever of the three it was, and nothing is forgotten."""
    town.node()
    town.api.faults.fail(500, times=1, method="PATCH", path=f"{failing}$")
    desk.reporter.found(a_machine(2))
    desk.reporter.registered(True)
    _, pause = desk.step()
    assert desk.reporter.last_error is not None
    desk.step(after=max(pause, RENEW_SECONDS))
    assert desk.reporter.last_error is None
    assert lease(town) is not None
    assert registered(town) == {"i1": True}


def test_stop_takes_only_our_own_marks_away(town, busy):
    """Entry and Lease go, the inventory stays: slices and pods live on."""
    busy.reporter.stop()
    assert lease(town) is None
    assert inventory(town).instances == ()
    assert inventory(town).machine == a_machine(2)


def test_stop_before_anything_was_said_writes_nothing(town, desk):
    """A plugin that could not open its sockets, say."""
    town.node()
    town.api.forget_requests()
    desk.reporter.stop()
    assert town.api.requests == []


def test_stop_without_an_api_server_ends_all_the_same(town, busy):
    """The controller sees the silence."""
    with town.api.outage(), capture_logs() as logs:
        busy.reporter.stop()
    assert [entry["event"] for entry in logs] == ["own marks left behind"]


def test_two_instances_keep_each_others_marks(town, busy):
    """In a rolling update the new one comes, the old one goes, and the entry that stays is the new one's."""
    with a_client(town.api, "second") as client:
        second = Desk(town, client, "i2")
        second.reporter.found(a_machine(2))
        second.reporter.registered(True)
        second.step()
        assert registered(town) == {"i1": True, "i2": True}
        busy.reporter.registered(False)
        busy.step()
        assert registered(town) == {"i1": False, "i2": True}
        busy.reporter.stop()
        assert registered(town) == {"i2": True}
        assert lease(town) is None
        assert lease(town, "i2") is not None
        assert inventory(town).machine == a_machine(2)


def test_its_thread_says_what_it_is_told(town):
    """Started and stopped as the plugin does it."""
    town.node()
    with a_client(town.api, "reporter") as client:
        reporter = Desk(town, client).reporter
        reporter.found(Machine(boot_id="boot-1"))
        reporter.start()
        try:
            reporter.registered(True)
            town.wait(lambda: inventory(town) is not None and registered(town) == {"i1": True})
            reporter.found(a_machine(1))
            town.wait(lambda: len(inventory(town).machine.gpus) == 1)
        finally:
            reporter.stop()
    assert inventory(town).instances == ()
