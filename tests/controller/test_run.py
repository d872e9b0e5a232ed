"""The controller at work on an API server: what it writes, and that it writes nothing when nothing changed."""

import json

import pytest

from api.kube.paths import NODE_INVENTORIES, NODES, SLICES
from controller.decide import UNREACHABLE
from controller.run import Controller
from controller.settings import Settings
from tests.support.controlled_cluster import QUICK, a_client, a_controller, a_town
from tests.support.gpus import a_machine

PATIENT = Settings(leader_election=False)


@pytest.fixture
def town():
    with a_town() as town:
        yield town


def test_a_node_is_published_and_its_condition_says_so(town):
    """Slices owned by the Node, one device a GPU, and the counts in the inventory."""
    owner = town.node()
    with a_controller(town, PATIENT):
        town.plugin(owner, a_machine(8))
        town.wait(lambda: town.condition().get("status") == "True")
        (obj,) = town.slices()
        assert obj["metadata"]["name"].startswith("00000-gpu.lanewise.dev-node-a-")
        assert obj["metadata"]["ownerReferences"] == [
            {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": owner.uid, "controller": True}
        ]
        assert obj["spec"]["pool"] == {"name": "node-a/gpu.lanewise.dev", "generation": 1, "resourceSliceCount": 1}
        assert len(town.devices()) == 8
        assert (town.condition()["reason"], town.condition()["message"]) == ("Published", "8 GPUs published")
        assert town.condition("Registered")["status"] == "True"
        status = town.api.store.get("nodeinventories", "node-a")["status"]
        assert status["published"] == {"devices": 8, "slices": 1, "leftOut": 0, "ailing": 0}


def test_nothing_is_written_when_nothing_changed(town):
    """Renewals, inventories in another order, an own start: no write."""
    owner = town.node()
    machine = a_machine(8)
    with a_controller(town, PATIENT):
        town.plugin(owner, machine)
        town.wait(lambda: town.condition().get("status") == "True")
        # A second node is the sign that all before it was worked on.
        town.api.forget_requests()
        town.renew()
        town.report(owner, type(machine)(tuple(reversed(machine.gpus)), driver=machine.driver, boot_id="boot-2"))
        town.register()
        second = town.node("node-b")
        town.plugin(second, a_machine(1), instance="i2")
        town.wait(lambda: town.condition(node="node-b").get("status") == "True")
        assert not [request for request in town.writes() if "node-a" in request.path]
        posts = [
            json.loads(request.body)["spec"]["nodeName"] for request in town.writes() if request.path == SLICES.path()
        ]
        assert posts == ["node-b"]
    town.api.forget_requests()
    with a_controller(town, PATIENT):
        town.renew("i1")
        town.renew("i2")
        third = town.node("node-c")
        town.plugin(third, a_machine(1), instance="i3")
        town.wait(lambda: town.condition(node="node-c").get("status") == "True")
        assert {request.path for request in town.writes()} == {
            SLICES.path(),
            NODE_INVENTORIES.path(name="node-c", subresource="status"),
        }


def test_slices_deleted_by_the_kubelet_come_back_after_a_sign_of_life_only(town):
    """Case I10: not with the deletion, but with the next renewal."""
    owner = town.node()
    with a_controller(town, PATIENT):
        town.plugin(owner)
        town.wait(lambda: town.condition().get("status") == "True")
        town.wipe()
        town.wait(lambda: town.condition().get("reason") == "Withdrawn")
        assert town.slices() == []
        town.renew()
        town.wait(lambda: len(town.devices()) == 2 and town.condition()["status"] == "True")
        assert town.taints() == set()


def test_a_silent_plugin_has_its_devices_tainted_and_clean_on_return(town):
    """In place: same object, NoSchedule, never evicted."""
    owner = town.node()
    with a_controller(town, QUICK):
        town.plugin(owner)
        town.wait(lambda: town.condition().get("status") == "True")
        (before,) = town.slices()
        town.wait(lambda: town.condition()["reason"] == "NoLiveInstance")
        (tainted,) = town.slices()
        assert tainted["metadata"]["uid"] == before["metadata"]["uid"]
        (taint,) = tainted["spec"]["devices"][0]["taints"]
        assert (taint["key"], taint["value"], taint["effect"]) == (UNREACHABLE, "silent", "NoSchedule")
        assert town.condition()["message"] == (
            "2 GPUs tainted NoSchedule: the plugin does not renew its Lease; running pods are not touched"
        )
        assert town.condition("Registered")["status"] == "False"
        town.renew()
        town.wait(lambda: not town.taints() and town.condition()["status"] == "True")


def test_a_silent_watch_is_no_silent_plugin(town):
    """A watch whose peer is gone says nothing either: the Lease is asked for before anybody is called dead."""
    owner = town.node()
    with a_controller(town, QUICK):
        town.plugin(owner)
        town.wait(lambda: town.condition().get("status") == "True")
        town.api.faults.stall_watches()
        for _ in range(2):
            town.api.forget_requests()
            town.renew()
            assert town.api.wait_for_request(
                lambda request: request.method == "GET" and request.path.endswith("/leases/lease-i1")
            )
            assert town.writes() == []
        town.api.faults.resume_watches()


def test_another_master_keeps_the_node_unpublished(town):
    """With NVIDIA's device plugin there, slices go; when it goes, they come."""
    owner = town.node(nvidia_com__gpu="8")
    with a_controller(town, PATIENT):
        town.plugin(owner)
        town.wait(lambda: town.condition().get("reason") == "ServedByDevicePlugin")
        assert town.slices() == []
        town.api.store.put(
            {**town.api.store.get("nodes", "node-a"), "status": {"allocatable": {"nvidia.com/gpu": "0"}}}
        )
        town.wait(lambda: len(town.devices()) == 2)
        spec = {
            "driver": "gpu.nvidia.com",
            "nodeName": "node-a",
            "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        }
        kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "other"}}
        town.client.create(SLICES.path(), {**kind, "spec": spec})
        town.wait(lambda: town.condition()["reason"] == "OtherDriver")
        assert [obj["spec"]["driver"] for obj in town.slices()] == ["gpu.nvidia.com"]


def test_shared_ownership_on_request(town):
    """The setting for a change-over."""
    owner = town.node(nvidia_com__gpu="8")
    with a_controller(town, Settings(leader_election=False, allow_shared_ownership=True)):
        town.plugin(owner)
        town.wait(lambda: len(town.devices()) == 2)


def test_changed_hardware_changes_the_slices(town):
    """Case I6: three GPUs at first, then four; nothing at first is nothing published, with a reason."""
    owner = town.node()
    with a_controller(town, PATIENT):
        town.plugin(owner, a_machine(0))
        town.wait(lambda: town.condition().get("reason") == "NoDevices")
        town.report(owner, a_machine(3))
        town.wait(lambda: len(town.devices()) == 3)
        town.report(owner, a_machine(4))
        town.wait(lambda: len(town.devices()) == 4)
        assert [obj["spec"]["pool"]["generation"] for obj in town.slices()] == [1]


def test_an_inventory_that_goes_takes_its_slices_along(town):
    """Also a Node that goes, and slices of ours that were left behind."""
    owner = town.node()
    stray = {
        "driver": "gpu.lanewise.dev",
        "nodeName": "node-z",
        "pool": {"name": "node-z/gpu.lanewise.dev", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}],
    }
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    town.client.create(SLICES.path(), {**kind, "metadata": {"name": "00000-stray"}, "spec": stray})
    foreign = {**stray, "pool": {**stray["pool"], "name": "somebody/else"}}
    town.client.create(SLICES.path(), {**kind, "metadata": {"name": "not-of-our-making"}, "spec": foreign})
    with a_controller(town, PATIENT):
        town.plugin(owner)
        town.wait(lambda: len(town.devices()) == 2)
        town.wait(lambda: [obj["metadata"]["name"] for obj in town.slices("node-z")] == ["not-of-our-making"])
        town.client.delete(NODE_INVENTORIES.path(name="node-a"))
        town.wait(lambda: not town.devices())
        town.plugin(owner)
        town.wait(lambda: len(town.devices()) == 2)
        town.api.store.remove("nodes", "node-a")
        town.wait(lambda: not town.devices())


def test_a_node_made_anew_is_published_anew(town):
    """Node deleted and recreated under its name: the inventory of before counts for nothing."""
    owner = town.node()
    with a_controller(town, PATIENT):
        town.plugin(owner)
        town.wait(lambda: len(town.devices()) == 2)
        town.client.delete(NODES.path(name="node-a"))
        town.wait(lambda: not town.devices())
        again = town.node()
        assert again.uid != owner.uid
        town.plugin(again)
        town.wait(lambda: len(town.devices()) == 2)
        (obj,) = town.slices()
        assert obj["metadata"]["ownerReferences"][0]["uid"] == again.uid


def test_fields_that_the_server_drops_are_reported_and_sent_once():
    """Taints off: the condition says so, and there is no hot loop."""
    with a_town(feature_gates={"DRADeviceTaints": False}) as town:
        owner = town.node()
        with a_controller(town, QUICK):
            town.plugin(owner)
            town.wait(lambda: town.condition().get("status") == "True")
            town.wait(lambda: town.condition()["reason"] == "NoLiveInstance")
            assert town.condition()["message"].endswith(
                "the API server dropped devices[].taints: a feature gate is off there"
            )
            town.api.forget_requests()
            town.register()
            other = town.node("node-b")
            town.plugin(other, a_machine(1), instance="i2")
            town.wait(lambda: town.condition(node="node-b").get("status") == "True")
            assert not [request for request in town.writes() if request.method == "PUT"]


@pytest.mark.parametrize("status", [500, 503, 409, 429])
def test_writes_that_fail_are_tried_again(town, status):
    """Whatever the server says for a while."""
    owner = town.node()
    town.api.faults.fail(status, times=2, method="POST", path="/apis/resource.k8s.io")
    with a_controller(town, PATIENT):
        town.plugin(owner)
        town.wait(lambda: town.condition().get("status") == "True")
        assert len(town.slices()) == 1


def test_an_answer_that_was_lost_makes_no_second_slice(town):
    """The create took place, the answer did not come: the watch shows it, and the pool ends as one slice."""
    owner = town.node()
    town.api.faults.drop(times=1, method="POST", path="/apis/resource.k8s.io", after_write=True)
    with a_controller(town, PATIENT):
        town.plugin(owner)
        town.wait(lambda: town.condition().get("status") == "True")
        assert len(town.slices()) == 1


def test_a_refused_slice_is_said_in_the_condition(town):
    """Say an admission policy does not like it."""
    owner = town.node()
    town.api.faults.fail(422, times=1, method="POST", path="/apis/resource.k8s.io", message="denied by a policy")
    with a_controller(town, PATIENT):
        town.plugin(owner)
        town.wait(lambda: town.condition().get("reason") == "Refused")
        town.wait(lambda: town.condition()["status"] == "True")


def test_somebody_elses_write_is_undone(town):
    """A device taken out by hand comes back; one slice, one generation."""
    owner = town.node()
    with a_controller(town, PATIENT):
        town.plugin(owner)
        town.wait(lambda: town.condition().get("status") == "True")
        (obj,) = town.slices()
        obj["spec"]["devices"].pop()
        town.client.replace(SLICES.path(name=obj["metadata"]["name"]), obj)
        town.wait(lambda: len(town.devices()) == 2)


def test_many_nodes_and_an_outage(town):
    """The API server goes away and comes back: every node ends published, none was tainted meanwhile."""
    owners = [town.node(f"node-{number}") for number in range(12)]
    with a_controller(town, PATIENT):
        for owner in owners[:6]:
            town.plugin(owner, a_machine(2), instance=owner.name)
        town.wait(lambda: len(town.slices()) == 6)
        with town.api.outage():
            pass
        for owner in owners[6:]:
            town.plugin(owner, a_machine(2), instance=owner.name)
        with town.pulse({owner.name: owner.name for owner in owners}):
            town.wait(lambda: len(town.slices()) == 12)
        assert all(town.taints(owner.name) == set() for owner in owners)


def test_a_controller_stopped_before_it_has_seen_everything_writes_nothing(town):
    """Half a picture looks like things deleted: slices without the inventory they were made from."""
    with a_controller(town, PATIENT):
        town.plugin(town.node())
        town.wait(lambda: town.condition().get("status") == "True")
    town.api.forget_requests()
    hold = town.api.faults.hold(path=NODE_INVENTORIES.path())
    with a_client(town.api, "controller") as client:
        controller = Controller(client, PATIENT)
        controller.start()
        assert town.api.wait_for_request(lambda request: request.path == SLICES.path())
        controller.stop()
    hold.release()
    assert town.writes() == []
    assert len(town.devices()) == 2
