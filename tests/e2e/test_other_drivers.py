"""Other drivers on the same node: beside us in one claim, or after the same GPUs."""

import json

import pytest

from tests.cluster.lanewise import until
from tests.e2e.second_driver import DRIVER as SECOND
from tests.e2e.second_driver import SecondDriver
from tests.e2e.site import Site, claim, pod, request


def both(name: str) -> dict:
    """A claim with a GPU of ours and a device of the second driver."""
    return claim(name, request("gpu"), {"name": "second", "exactly": {"deviceClassName": SECOND}})


def published_condition(site: Site) -> dict:
    """The condition `Published` of the node's inventory."""
    return next(each for each in site.inventory()["status"]["conditions"] if each["type"] == "Published")


@pytest.fixture
def second(site):
    """The second driver, there until the test's pods are gone."""
    with SecondDriver(site.cluster) as driver:
        yield driver
        driver.failing = False
        site.clean()


def test_claim_with_results_of_two_drivers(site, second):
    """Each prepares its own device, the container gets both, both are released (dra-driver-nvidia-gpu #1327)."""
    site.apply(both("mixed"), pod("mixed", claims=["mixed"]))
    site.running("mixed")
    assert len(site.seen("mixed").uuids) == 1
    assert site.cluster.kubectl("exec", "mixed", "--", "/bin/sh", "-c", "echo $SECOND_DRIVER") == "here\n"
    assert second.prepared == site.kept()[0]
    site.delete(pod("mixed"))
    until("both released it", lambda: not second.prepared and site.kept() == (set(), set(), {}))


def test_other_driver_fails_and_recovers(site, second):
    """Ours is prepared again and again meanwhile, with the same answer; in the end the pod runs (Case H8)."""
    second.failing = True
    site.apply(both("halting"), pod("halting", claims=["halting"]))
    until("the failure is told", lambda: any("told to fail" in note for note in site.events("Pod", "halting")), 120)
    second.failing = False
    site.running("halting", seconds=180)
    site.agrees()


def test_other_driver_fails_and_the_pod_goes(site, second):
    """Whatever of ours was prepared for a pod that never ran is released (Case H8)."""
    second.failing = True
    never = pod("never", claims=["never"])
    site.apply(both("never"), never)
    until("the failure is told", lambda: any("told to fail" in note for note in site.events("Pod", "never")), 120)
    site.delete(never)
    until("nothing is left", lambda: site.kept() == (set(), set(), {}), 90)


def test_device_plugin_on_the_node_withdraws_our_devices(site):
    """Two masters would hand the same GPU out twice: nothing of ours is published while nvidia.com/gpu is allocatable."""
    patch = [{"op": "add", "path": "/status/capacity/nvidia.com~1gpu", "value": "8"}]
    away = [{"op": "remove", "path": "/status/capacity/nvidia.com~1gpu"}]
    arguments = ("patch", "node", "localhost", "--subresource=status", "--type=json", "-p")
    site.cluster.kubectl(*arguments, json.dumps(patch))
    try:
        until("our devices are withdrawn", lambda: not site.slices(), 60)
        condition = published_condition(site)
        assert (condition["status"], condition["reason"]) == ("False", "ServedByDevicePlugin")
        assert "nvidia.com/gpu" in condition["message"]
    finally:
        site.cluster.kubectl(*arguments, json.dumps(away))
    site.published(60)


def test_other_dra_driver_with_the_same_gpu_withdraws_our_devices(site):
    """Told by the PCI address that both publish."""
    device = next(iter(site.devices().values()))
    rival = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "rival"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": "localhost",
            "pool": {"name": "rival", "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": "gpu-0",
                    "attributes": {
                        "resource.kubernetes.io/pciBusID": device["attributes"]["resource.kubernetes.io/pciBusID"]
                    },
                }
            ],
        },
    }
    site.cluster.apply(json.dumps(rival))
    try:
        until("our devices are withdrawn", lambda: not site.slices())
        condition = published_condition(site)
        assert (condition["status"], condition["reason"]) == ("False", "OtherDriver")
        assert "gpu.example.com" in condition["message"]
    finally:
        site.cluster.kubectl("delete", "resourceslice", "rival")
    site.published(60)
