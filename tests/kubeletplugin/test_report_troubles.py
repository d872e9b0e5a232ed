"""What a Reporter does with what nobody foresaw."""

from datetime import UTC, datetime

import pytest

from api.kube.backoff import Backoff
from api.kube.errors import NotFound, Unreachable
from api.kube.paths import LEASES, NODE_INVENTORIES
from kubeletplugin.report import RENEW_SECONDS, Reporter
from tests.support.gpus import a_machine

LEASE = LEASES.path("lanewise-system", "lanewise-node-i1")
INVENTORY = NODE_INVENTORIES.path(name="node-a")
STATUS = NODE_INVENTORIES.path(name="node-a", subresource="status")


class Cluster:
    """Takes everything, unless told to raise at a path, and remembers the paths of what was applied."""

    def __init__(self):
        self.applied, self.deleted = [], []
        self.raising = {}

    def get(self, path):
        return {"metadata": {"uid": "uid-of-node-a"}}

    def delete(self, path):
        self.deleted.append(path)

    def apply(self, path, obj, *, field_manager, force):
        if path in self.raising:
            raise self.raising.pop(path)
        self.applied.append(path)
        return {"metadata": {"uid": f"uid-of-{path}", **obj["metadata"]}}


class Desk:
    def __init__(self):
        self.cluster, self.now = Cluster(), 100.0
        self.reporter = Reporter(
            self.cluster,
            node="node-a",
            namespace="lanewise-system",
            instance="i1",
            version="0.1.0",
            clock=lambda: self.now,
            wall=lambda: datetime.fromtimestamp(1.8e9 + self.now, UTC),
            backoff=Backoff(clock=lambda: self.now, chance=lambda: 1.0),
        )

    def step(self, after=0.0):
        """One step; what it applied."""
        self.now += after
        self.cluster.applied.clear()
        self.reporter.step()
        return list(self.cluster.applied)


@pytest.fixture
def desk():
    desk = Desk()
    desk.reporter.found(a_machine(1))
    desk.reporter.registered(True)
    assert desk.step() == [LEASE, INVENTORY, STATUS]
    return desk


@pytest.mark.parametrize("path", [LEASE, STATUS])
def test_a_surprise_ends_no_thread(desk, path):
    """A thread that dies would renew no Lease, and the node would look dead for ever."""
    desk.cluster.raising[path] = TypeError("no such answer")
    desk.reporter.registered(False)
    desk.step(1)
    assert desk.reporter.last_error == "TypeError: no such answer"
    assert STATUS in desk.step(1)
    assert desk.reporter.last_error is None


def test_a_sign_of_life_that_was_not_taken_is_given_again(desk):
    """It would otherwise come with the next renewal only, and slices that were deleted stay away until then."""
    desk.cluster.raising[LEASE] = Unreachable("server", "nobody there")
    desk.reporter.registered(False)
    assert desk.step(1) == []
    assert desk.step(1) == [LEASE, STATUS]


def test_an_inventory_that_is_gone_is_made_anew_when_its_status_is_refused(desk):
    """Not only after the ten minutes in which it would be repeated anyway."""
    desk.cluster.raising[STATUS] = NotFound(f"PATCH {STATUS}", status=404, reason="NotFound", message="")
    desk.reporter.registered(False)
    assert desk.step(1) == [LEASE]
    assert desk.step(1) == [LEASE, INVENTORY, STATUS]
    assert desk.step(RENEW_SECONDS) == [LEASE]


def test_stop_takes_the_lease_away_though_the_inventory_is_gone(desk):
    """Nobody else would: without an entry no one knows of it."""
    desk.cluster.raising[STATUS] = NotFound(f"PATCH {STATUS}", status=404, reason="NotFound", message="")
    desk.reporter.stop()
    assert desk.cluster.deleted == [LEASE]
