"""Who else hands out a node's GPUs."""

import pytest

from controller.conflicts import Rival, foreign_slice, rival_of
from tests.support.gpus import a_gpu

GPUS = (a_gpu(0x65),)


def a_slice(driver="gpu.example.dev", node="node-a", **attributes):
    values = {key.replace("__", "/").replace("_", "."): {"string": value} for key, value in attributes.items()}
    spec = {"driver": driver, "devices": [{"name": "d", "attributes": values}]}
    if node:
        spec["nodeName"] = node
    return foreign_slice({"metadata": {"name": f"slice-{driver}"}, "spec": spec})


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"])
def test_a_device_plugin_is_a_rival(name):
    """Allocatable above zero means that it hands GPUs out."""
    rival = rival_of(GPUS, {name: "8"}, (), node="node-a")
    assert rival == Rival(
        "ServedByDevicePlugin", f"the node offers 8 {name} through a device plugin; take the plugin off this node"
    )


@pytest.mark.parametrize("allocatable", [{}, {"nvidia.com/gpu": "0"}, {"nvidia.com/GA102GL_A10": "1"}])
def test_no_plugin_no_rival(allocatable):
    """The kubelet keeps a zero after a plugin has gone; GPUs passed through to VMs are none of ours."""
    assert rival_of(GPUS, allocatable, (), node="node-a") is None


@pytest.mark.parametrize(
    "other",
    [
        a_slice(uuid="GPU-00000000-0000-0000-0000-000000000065"),
        a_slice(gpu_example_dev__uuid="gpu-00000000-0000-0000-0000-000000000065"),
        a_slice(resource_kubernetes_io__pciBusID="0000:65:00.0"),
        a_slice(node=None, uuid="GPU-00000000-0000-0000-0000-000000000065"),
    ],
)
def test_another_driver_with_our_gpu_is_a_rival(other):
    """By UUID, or by PCI address on the same node."""
    rival = rival_of(GPUS, {}, (other,), node="node-a")
    assert rival == Rival("OtherDriver", "driver gpu.example.dev publishes GPUs of this node; take it off this node")


def test_nvidias_driver_is_a_rival_whatever_it_says():
    """It publishes the node's GPUs under attributes that may change."""
    assert rival_of(GPUS, {}, (a_slice("gpu.nvidia.com"),), node="node-a").reason == "OtherDriver"


@pytest.mark.parametrize(
    "other",
    [
        a_slice(resource_kubernetes_io__pciBusID="0000:66:00.0"),
        a_slice(node="node-b", resource_kubernetes_io__pciBusID="0000:65:00.0"),
        a_slice(node=None, resource_kubernetes_io__pciBusID="0000:65:00.0"),
        a_slice("gpu.nvidia.com", node="node-b"),
        a_slice(resource_kubernetes_io__pciBusID="not an address"),
        foreign_slice({"metadata": {"name": "s"}, "spec": {"driver": "gpu.nvidia.com", "nodeName": "node-a"}}),
    ],
)
def test_others_are_no_rivals(other):
    """NIC drivers, other nodes, empty slices."""
    assert rival_of(GPUS, {}, (other,), node="node-a") is None
