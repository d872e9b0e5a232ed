"""Electing a leader."""

import threading
from contextlib import contextmanager
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from api.kube.client import Client
from api.kube.lease import LeaderElector, Seen, seen, why_not_take
from api.kube.server import Server
from tests.support.reflecting import FakeTime
from tests.support.scripted_server import SECONDS, ScriptedServer, refusal
from tests.support.small_store import SmallStore

PATH = "/apis/coordination.k8s.io/v1/namespaces/lanewise-system/leases/controller"


class Told:
    """A leader that writes down what it is told."""

    def __init__(self, *, fails=False):
        self.said = []
        self.fails = fails
        self.started = threading.Event()

    def on_started(self):
        self.said.append("started")
        self.started.set()
        if self.fails:
            raise RuntimeError("no port free")

    def on_stopped(self, why):
        self.said.append(f"stopped: {why}")

    def on_leader(self, identity):
        self.said.append(f"leader: {identity}")


class Cluster:
    """A server, a store, and candidates that share a clock."""

    def __init__(self, server, store):
        self.server, self.store, self.time = server, store, FakeTime()
        self.clients = []

    def candidate(self, identity, **options):
        client = Client(Server(url=self.server.url), user_agent="test", timeout_seconds=SECONDS)
        self.clients.append(client)
        told = options.pop("told", None) or Told()
        elector = LeaderElector(
            client,
            namespace="lanewise-system",
            name="controller",
            identity=identity,
            leading=told,
            clock=self.time,
            now=lambda: datetime.fromtimestamp(1.8e9 + self.time.now, UTC),
            chance=lambda: 0.0,
            **options,
        )
        return elector, told

    @property
    def spec(self):
        return self.store.objects[PATH]["spec"]


@contextmanager
def a_cluster():
    store = SmallStore()
    with ScriptedServer(answer=store) as server:
        cluster = Cluster(server, store)
        yield cluster
        for client in cluster.clients:
            client.close()


def test_first_candidate_makes_the_lease_and_leads():
    """Where no Lease is, the first to come makes it."""
    with a_cluster() as cluster:
        elector, told = cluster.candidate("a")
        assert elector.step() == "leading"
        assert told.said == ["started", "leader: a"]
        assert (cluster.spec["holderIdentity"], cluster.spec["leaseDurationSeconds"]) == ("a", 15)
        assert cluster.spec["leaseTransitions"] == 0


def test_second_candidate_waits_and_says_for_whom():
    """A fresh lease of another is left alone."""
    with a_cluster() as cluster:
        cluster.candidate("a")[0].step()
        elector, told = cluster.candidate("b")
        assert elector.step() == "not leading: a leads, seen renewing 0 s ago"
        assert told.said == ["leader: a"]


def test_silent_leader_is_replaced_after_the_duration_by_our_clock():
    """15 s after we last saw a change, whatever time the Lease itself holds, and not a moment earlier."""
    with a_cluster() as cluster:
        cluster.candidate("a")[0].step()
        elector, told = cluster.candidate("b")
        elector.step()
        cluster.time.now += 14.9
        assert elector.step() == "not leading: a leads, seen renewing 15 s ago"
        cluster.time.now += 0.2
        assert elector.step() == "leading"
        assert told.said == ["leader: a", "started", "leader: b"]
        assert cluster.spec["leaseTransitions"] == 1


def test_renewed_lease_is_never_taken():
    """As long as the leader renews, its follower waits."""
    with a_cluster() as cluster:
        leader, _ = cluster.candidate("a")
        follower, told = cluster.candidate("b")
        for _ in range(20):
            leader.step()
            follower.step()
            cluster.time.now += 2.0
        assert told.said == ["leader: a"]


def test_renewal_is_one_request():
    """A leader writes with the version it knows, without reading first."""
    with a_cluster() as cluster:
        elector, _ = cluster.candidate("a")
        elector.step()
        before = len(cluster.server.asked)
        elector.step()
        assert [asked.method for asked in cluster.server.asked[before:]] == ["PUT"]


def test_leader_that_cannot_renew_gives_up_before_others_may_take_over():
    """10 s without renewal end the leading; until then it says what is wrong. Others wait for 15 s."""
    with a_cluster() as cluster:
        elector, told = cluster.candidate("a")
        elector.step()
        cluster.server._answer = lambda asked: refusal(500, "InternalError", "etcd has no leader")
        cluster.time.now += 9.0
        assert elector.step() == f"leading, but PUT {PATH}: 500 InternalError: etcd has no leader"
        cluster.time.now += 1.0
        assert elector.step() == f"not leading: PUT {PATH}: 500 InternalError: etcd has no leader"
        assert told.said[-1] == f"stopped: PUT {PATH}: 500 InternalError: etcd has no leader"


def test_leader_whose_lease_was_taken_stops_at_once():
    """Another holder in the Lease ends the leading without waiting for the deadline."""
    with a_cluster() as cluster:
        elector, told = cluster.candidate("a")
        elector.step()
        cluster.store.write(PATH, {**cluster.store.objects[PATH], "spec": {**cluster.spec, "holderIdentity": "b"}})
        elector.step()
        assert told.said == ["started", "leader: a", "stopped: b leads, seen renewing 0 s ago", "leader: b"]


def test_foreign_change_of_the_lease_is_no_loss():
    """Somebody labels the Lease: the leader's next write conflicts, it reads again and goes on."""
    with a_cluster() as cluster:
        elector, told = cluster.candidate("a")
        elector.step()
        cluster.store.write(PATH, cluster.store.objects[PATH])
        assert elector.step() == "leading"
        assert told.said == ["started", "leader: a"]


def test_deleted_lease_is_made_again_by_its_leader():
    """Deleting the Lease does not unseat anybody."""
    with a_cluster() as cluster:
        elector, told = cluster.candidate("a")
        elector.step()
        cluster.store.objects.clear()
        assert elector.step() == "leading"
        assert cluster.spec["holderIdentity"] == "a"
        assert told.said == ["started", "leader: a"]


def test_stopping_ends_the_work_first_and_then_frees_the_lease():
    """The next candidate leads at once, and never while the old one works."""
    with a_cluster() as cluster:
        holders = []

        class Watchful(Told):
            def on_stopped(self, why):
                super().on_stopped(why)
                holders.append(cluster.spec["holderIdentity"])

        elector, told = cluster.candidate("a", told=Watchful(), wait=lambda stop, _: stop.wait(SECONDS))
        elector.start()
        assert told.started.wait(SECONDS)
        assert elector.stop()
        assert told.said[-1] == "stopped: stopped"
        assert holders == ["a"], "still ours while the work ended"
        assert (cluster.spec["holderIdentity"], cluster.spec["leaseDurationSeconds"]) == ("", 1)
        follower, _ = cluster.candidate("b")
        assert follower.step() == "leading"
        assert cluster.spec["leaseTransitions"] == 1


def test_candidate_stops_without_touching_the_lease():
    """Who does not lead has nothing to give back."""
    with a_cluster() as cluster:
        cluster.candidate("a")[0].step()
        elector, told = cluster.candidate("b", wait=lambda stop, _: stop.wait(SECONDS))
        elector.start()
        cluster.server.wait_for(lambda server: len(server.asked) >= 3, "a look at the lease")
        assert elector.stop()
        assert cluster.spec["holderIdentity"] == "a"
        assert "started" not in told.said


def test_leader_that_cannot_start_gives_the_lease_back():
    """A broken candidate does not keep a sound one from leading."""
    with a_cluster() as cluster:
        elector, told = cluster.candidate("a", told=Told(fails=True))
        elector.step()
        assert told.said[:2] == ["started", "stopped: could not start: no port free"]
        assert cluster.spec["holderIdentity"] == ""


@given(
    holder=st.sampled_from(["", "me", "other"]), duration=st.integers(1, 60), waited=st.floats(0, 120, allow_nan=False)
)
def test_only_a_foreign_lease_within_its_duration_keeps_us_away(holder, duration, waited):
    """The whole rule, for any numbers."""
    lease = Seen(holder, "t", float(duration), 100.0)
    now = 100.0 + waited
    foreign_and_fresh = holder == "other" and now < 100.0 + duration
    assert (why_not_take(lease, "me", now) is not None) == foreign_and_fresh


def test_lease_that_did_not_change_keeps_the_time_it_was_first_seen():
    """Reading the same Lease again does not make it younger."""
    lease = {"spec": {"holderIdentity": "a", "renewTime": "t1", "leaseDurationSeconds": 15}}
    first = seen(lease, None, 100.0)
    assert seen(lease, first, 110.0) == first
    assert seen({"spec": {**lease["spec"], "renewTime": "t2"}}, first, 110.0).at_seconds == 110.0


def test_a_surprise_does_not_leave_us_leading_without_the_lease():
    """Whatever a try ends with, the lease runs out for us before it does for others."""
    with a_cluster() as cluster:
        elector, told = cluster.candidate("a")
        elector.step()

        def surprise(*_, **__):
            raise TypeError("no such answer")

        elector._client.replace = surprise
        assert elector.step() == "leading, but TypeError: no such answer"
        cluster.time.now += 10
        assert elector.step() == "not leading: TypeError: no such answer"
        assert told.said[-2:] == ["leader: a", "stopped: TypeError: no such answer"]
