"""The stand-in scheduler at work on the in-process API server."""

import threading

import pytest

from api.kube.client import Client
from api.kube.server import Server
from cli.sandbox.scheduler import FINALIZER, Scheduler
from tests.support.allocation import DRIVER, a_claim, a_class, a_device, a_node, a_request, a_slice

SECONDS = 10.0
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/team-a/resourceclaims"
PODS = "/api/v1/namespaces/team-a/pods"
NODES = "/api/v1/nodes"


class Town:
    """An API server with a scheduler, and what people do."""

    def __init__(self, server, client):
        self.server = server
        self.client = client
        server.store.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})

    def pod(self, name, *claims, **spec):
        entries = [{"name": f"claim-{i}", "resourceClaimName": claim} for i, claim in enumerate(claims)]
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "main", "image": "x"}], "resourceClaims": entries, **spec},
        }
        return self.client.create(PODS, body)

    def await_that(self, true):
        """Wait until `true()` gives something; it is looked at again after each change."""
        store = self.server.store
        with store.changed:
            found = []

            def looked():
                found[:] = [true()]
                return found[0]

            assert store.changed.wait_for(looked, SECONDS), "it did not come true in time"
            return found[0]

    def find(self, plural, name, namespace="team-a"):
        kind = self.server.served.named(plural)
        return dict(self.server.store.under(kind.storage, namespace)).get(
            next((key for key, _ in self.server.store.under(kind.storage, namespace) if key.name == name), None)
        )

    def bound(self, name):
        return self.await_that(lambda: self._bound(name))

    def _bound(self, name):
        pod = self.find("pods", name)
        return pod if pod and pod["spec"].get("nodeName") else None

    def told(self, name):
        """The message of the pod's condition PodScheduled once it is False."""

        def condition():
            pod = self.find("pods", name) or {}
            for each in (pod.get("status") or {}).get("conditions") or ():
                if each["type"] == "PodScheduled" and each["status"] == "False":
                    return each
            return None

        return self.await_that(condition)

    def devices(self, claim):
        allocation = self.find("resourceclaims", claim)["status"]["allocation"]
        return [result["device"] for result in allocation["devices"]["results"]]


@pytest.fixture
def town(server):
    with Client(Server(server.url), user_agent="test") as client:
        town = Town(server, client)
        client.create(NODES, a_node())
        client.create(CLASSES, a_class("gpu", f'device.driver == "{DRIVER}"', extendedResourceName="example.com/gpu"))
        client.create(SLICES, a_slice(a_device("gpu-0"), a_device("gpu-1")))
        scheduler = Scheduler(client)
        scheduler.start()
        yield town
        scheduler.stop()
        assert not [thread for thread in threading.enumerate() if thread.name.startswith(("scheduler", "reflector"))]


def test_pod_without_devices_gets_a_node(town):
    """A pod that claims nothing is bound, and told so."""
    town.pod("plain")
    pod = town.bound("plain")
    assert pod["spec"]["nodeName"] == "node-a"
    assert [c["status"] for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"] == ["True"]


def test_claim_is_allocated_reserved_and_kept_by_a_finalizer(town):
    """What a claim looks like after its pod was placed is what kube-scheduler leaves."""
    town.client.create(CLAIMS, a_claim(name="one"))
    pod = town.pod("first", "one")
    town.bound("first")
    claim = town.find("resourceclaims", "one")
    assert claim["metadata"]["finalizers"] == [FINALIZER]
    assert claim["status"]["reservedFor"] == [{"resource": "pods", "name": "first", "uid": pod["metadata"]["uid"]}]
    allocation = claim["status"]["allocation"]
    assert allocation.pop("allocationTimestamp")
    assert allocation == {
        "devices": {"results": [{"request": "gpu", "driver": DRIVER, "pool": "node-a", "device": "gpu-0"}]},
        "nodeSelector": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]}]
        },
    }


def test_two_pods_share_an_allocated_claim(town):
    """A second pod of the same claim is entered beside the first, and no device is added."""
    town.client.create(CLAIMS, a_claim(name="one"))
    town.pod("first", "one")
    town.bound("first")
    town.pod("second", "one")
    town.bound("second")
    assert [user["name"] for user in town.find("resourceclaims", "one")["status"]["reservedFor"]] == ["first", "second"]
    assert town.devices("one") == ["gpu-0"]


def test_pod_that_finds_no_device_is_told_who_has_them_and_gets_one_when_it_is_free(town):
    """The pod waits with condition and Event, and is placed when the claim that holds the device is gone."""
    for name in ("one", "two", "three"):
        town.client.create(CLAIMS, a_claim(name=name))
        town.pod(name, name)
        if name != "three":
            town.bound(name)
    condition = town.told("three")
    assert condition["reason"] == "Unschedulable"
    assert condition["message"] == (
        "0/1 nodes are available: node-a: claim team-a/three: request gpu wants 1 device, and 0 of 2 fit "
        "(2 held by claims team-a/one, team-a/two)."
    )
    event = town.await_that(
        lambda: next(
            (e for _, e in town.server.store.under("events", "team-a") if e["reason"] == "FailedScheduling"), None
        )
    )
    assert event["message"] == condition["message"]
    claim = town.find("resourceclaims", "one")
    freed = {**claim["status"], "allocation": None, "reservedFor": []}
    town.client.delete(f"{PODS}/one")
    town.client.replace(f"{CLAIMS}/one/status", {**claim, "status": freed})
    town.bound("three")
    assert town.devices("three") == ["gpu-0"]


def test_pod_waits_for_the_claim_of_its_template(town):
    """A claim that is not made yet is waited for; made for the pod, it is allocated."""
    entry = {"name": "gpu", "resourceClaimTemplateName": "template"}
    pod = town.pod("templated", resourceClaims=[entry])
    assert "has not been made from its template yet" in town.told("templated")["message"]
    meta = {
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "templated", "uid": pod["metadata"]["uid"], "controller": True}
        ]
    }
    claim = a_claim(name="made")
    town.client.create(CLAIMS, {**claim, "metadata": {**claim["metadata"], **meta}})
    town.client.merge_patch(
        f"{PODS}/templated/status",
        {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "made"}]}},
    )
    town.bound("templated")
    assert town.devices("made") == ["gpu-0"]


def test_claim_made_for_another_pod_is_not_used(town):
    """A claim under the name of a template's claim that belongs to somebody else is refused."""
    town.client.create(CLAIMS, a_claim(name="stranger"))
    town.pod("templated", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "template"}])
    town.client.merge_patch(
        f"{PODS}/templated/status",
        {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "stranger"}]}},
    )
    town.await_that(lambda: "was not made for this pod" in town.told("templated")["message"])


def test_extended_resource_becomes_a_claim(town):
    """A pod that asks for example.com/gpu: 2 gets a claim of its own, and its status says which request is whose."""
    container = {"name": "main", "image": "x", "resources": {"limits": {"example.com/gpu": "2"}}}
    pod = town.pod("legacy", containers=[container])
    status = town.bound("legacy")["status"]["extendedResourceClaimStatus"]
    assert status["requestMappings"] == [
        {"containerName": "main", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}
    ]
    claim = town.find("resourceclaims", status["resourceClaimName"])
    assert claim["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert town.devices(status["resourceClaimName"]) == ["gpu-0", "gpu-1"]


def test_extended_resource_that_nothing_offers_is_told(town):
    """A resource without class and device plugin leaves the pod pending with its name."""
    container = {"name": "main", "image": "x", "resources": {"limits": {"example.com/other": "1"}}}
    town.pod("odd", containers=[container])
    assert "insufficient example.com/other" in town.told("odd")["message"]


def test_selector_that_fails_is_told_as_an_error(town):
    """Case of an attribute that the devices do not have: the pod waits with SchedulerError and the expression's fault."""
    town.client.create(CLAIMS, a_claim(a_request("gpu", f'device.attributes["{DRIVER}"].nosuch == 1'), name="bad"))
    town.pod("bad", "bad")
    condition = town.told("bad")
    assert condition["reason"] == "SchedulerError"
    assert "claim team-a/bad, request gpu: selector #0" in condition["message"]


def test_pod_that_is_not_understood_is_left_alone_visibly(town):
    """A field that would have to be ignored keeps the pod pending, by name."""
    term = {"labelSelector": {}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    town.pod("picky", affinity=affinity)
    assert town.told("picky")["message"].startswith("spec.affinity.podAntiAffinity is not understood")


def test_device_taint_is_named_and_waited_out(town):
    """A pod is kept off tainted devices, told which taint it was, and placed when the taint is gone."""
    slice_name = a_slice()["metadata"]["name"]
    stored = town.find("resourceslices", slice_name, "")
    taint = {"key": "lanewise.dev/unreachable", "effect": "NoSchedule"}
    tainted = [{**device, "taints": [taint]} for device in stored["spec"]["devices"]]
    town.client.replace(f"{SLICES}/{slice_name}", {**stored, "spec": {**stored["spec"], "devices": tainted}})
    town.client.create(CLAIMS, a_claim(name="one"))
    town.pod("first", "one")
    assert "2 tainted lanewise.dev/unreachable:NoSchedule" in town.told("first")["message"]
    now = town.find("resourceslices", slice_name, "")
    town.client.replace(f"{SLICES}/{slice_name}", {**now, "spec": stored["spec"]})
    town.bound("first")


def test_cordoned_node_gets_no_pods(town):
    """A node that is unschedulable is not chosen."""
    town.client.merge_patch(f"{NODES}/node-a", {"spec": {"unschedulable": True}})
    town.await_that(lambda: town.find("nodes", "node-a", "")["spec"].get("unschedulable"))
    town.pod("plain")
    assert "untolerated taint {node.kubernetes.io/unschedulable}" in town.told("plain")["message"]


def test_scheduler_finds_its_way_after_an_outage(town):
    """When the API server comes back, pods made since then are placed."""
    with town.server.outage():
        pass
    town.pod("after")
    town.bound("after")
