"""What a node's slices should be, and the sentence that says why."""

import dataclasses

import pytest

from api.hardware import Machine
from api.inventory import decode
from controller.decide import Facts, decide
from controller.liveness import NodeSigns, Signs
from controller.pool import devices_of
from tests.support.gpus import NODE_UID, a_gpu, a_machine, an_instance, an_inventory

DRIVER = "gpu.lanewise.dev"
ALIVE = NodeSigns((Signs("i1", True, 95.0, True, 95.0),))


def facts(machine=None, node="node-a", **changes):
    machine = machine if machine is not None else a_machine(2)
    inventory = decode(an_inventory(node, machine, (an_instance(),)))
    start = Facts(node, NODE_UID, inventory, devices_of(machine), signs=ALIVE)
    return dataclasses.replace(start, **changes)


def what(given, **options):
    found = decide(given, 100.0, driver=DRIVER, stale_seconds=40.0, **{"allow_shared_ownership": False, **options})
    return found.reason, found.message, found.devices


def test_a_live_node_is_published():
    """With a sentence, and the moment to look again."""
    assert what(facts()) == ("Published", "2 GPUs published", 2)
    assert what(facts(a_machine(1))) == ("Published", "1 GPU published", 1)
    found = decide(facts(), 100.0, driver=DRIVER, stale_seconds=40.0, allow_shared_ownership=False)
    assert found.look_again == 135.0


def test_what_is_left_out_is_said():
    """Case D1: the rest is published."""
    machine = Machine((a_gpu(0x10), a_gpu(0x20, uuid="")))
    assert what(facts(machine)) == (
        "Published",
        "1 GPU published; gpu-20-00-0 left out: it has no UUID, so nothing could tell it from another",
        1,
    )


@pytest.mark.parametrize(
    ("changes", "reason", "message"),
    [
        ({"inventory": None}, "NoInventory", "no plugin has reported what this node has"),
        ({"node_uid": None}, "NoNode", "there is no Node of this name"),
        (
            {"node_uid": "another"},
            "NoNode",
            "the inventory belongs to an earlier Node of this name; the plugin writes it anew",
        ),
        ({"fault": "nodeinventory node-a: bad"}, "Invalid", "nodeinventory node-a: bad"),
        ({"signs": NodeSigns()}, "NoLiveInstance", "nothing is published: the kubelet has no plugin registered"),
        (
            {"allocatable": {"nvidia.com/gpu": "2"}},
            "ServedByDevicePlugin",
            "the node offers 2 nvidia.com/gpu through a device plugin; take the plugin off this node",
        ),
    ],
)
def test_why_nothing_is_published(changes, reason, message):
    """Every reason that a condition may have."""
    found = decide(facts(**changes), 100.0, driver=DRIVER, stale_seconds=40.0, allow_shared_ownership=False)
    assert (found.reason, found.message, found.slices, found.published) == (reason, message, (), False)


def test_no_gpu_says_what_was_left_out():
    """An operator need not look further."""
    reason, message, _ = what(facts(Machine((a_gpu(mig_enabled=True),))))
    assert reason == "NoDevices"
    assert message == (
        "no GPU to publish; gpu-65-00-0 left out: MIG mode is on: its slices may be in use, so it is not offered "
        "as a whole; to offer it: nvidia-smi -mig 0"
    )


def test_a_node_name_too_long_for_a_pool_is_said():
    """Nothing is sent that the API server would refuse."""
    reason, message, _ = what(facts(node=".".join(["n" * 60] * 4)))
    assert reason == "Invalid"
    assert message.startswith("slice 0: the pool's name has 260 bytes")


def test_shared_ownership_when_allowed():
    """The setting silences the conflict and nothing else."""
    given = facts(allocatable={"nvidia.com/gpu": "2"})
    assert what(given, allow_shared_ownership=True)[0] == "Published"
