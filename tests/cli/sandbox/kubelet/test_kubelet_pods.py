"""Pods of a node, from their first sync to their end, with plugins that speak the real sockets."""

import json

import pytest

from kubeletplugin.cdi.spec import DeviceNode
from tests.support.kubelet_world import GPUS, NICS, NODE, until


def _ready(pod):
    return {each["type"]: each["status"] for each in pod["status"]["conditions"]}


def test_pod_runs_when_its_claim_is_prepared(world):
    """The driver is asked once, the containers get what the CDI file says, and the status says so."""
    driver = world.driver()
    world.plugin(driver)
    kubelet = world.kubelet()
    world.claim("c")
    world.pod()
    until(lambda: world.phase() == "Running")
    pod = world.found()
    assert driver.calls == [("prepare", "c")]
    assert _ready(pod) == dict.fromkeys(
        ("PodScheduled", "PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"), "True"
    )
    (status,) = pod["status"]["containerStatuses"]
    assert (status["name"], status["ready"], list(status["state"])) == ("main", True, ["running"])
    (view,) = kubelet.views("default", "p").values()
    assert view.cdi_names == kubelet.cdi_names("default", "p", "main")
    assert view.edits.env == (f"DRIVER={GPUS}", "GOT_GPU=c")
    assert view.edits.device_nodes == (
        DeviceNode("/dev/gpu", host_path="/machine/dev/gpu", type="c", major=195, minor=0),
    )


def test_pod_without_claims_runs(world):
    """No plugin is needed for it."""
    kubelet = world.kubelet()
    world.pod(claims=())
    until(lambda: world.phase() == "Running")
    assert kubelet.views("default", "p")["main"].cdi_names == ()


def test_container_gets_only_what_it_names(world):
    """A claim it does not refer to is prepared, but not its; a request narrows a claim down."""
    driver = world.driver(c=["a", "b"])
    world.plugin(driver)
    kubelet = world.kubelet()
    world.claim("c", requests=("a", "b"))
    world.claim("d")
    world.pod(claims=("c", "d"), containers={"one": [("c", "b")], "all": [("c", "")], "none": []})
    until(lambda: world.phase() == "Running")
    views = kubelet.views("default", "p")
    assert {name: [line for line in view.edits.env if line != f"DRIVER={GPUS}"] for name, view in views.items()} == {
        "one": ["GOT_B=c"],
        "all": ["GOT_A=c", "GOT_B=c"],
        "none": [],
    }
    assert sorted(driver.calls) == [("prepare", "c"), ("prepare", "d")]


def test_claims_of_a_pod_come_in_one_call_to_each_driver(world):
    """As the kubelet batches them."""
    gpus, nics = world.driver(), world.driver(NICS)
    world.plugin(gpus)
    world.plugin(nics)
    kubelet = world.kubelet()
    until(lambda: len(kubelet.registry.plugins) == 2)
    calls = []
    for plugin in kubelet.registry.plugins.values():
        before = plugin.prepare
        plugin.prepare = lambda claims, plugin=plugin, before=before: (
            calls.append((plugin.driver, len(claims))),
            before(claims),
        )[1]
    world.claim("c", GPUS, NICS)
    world.claim("d", GPUS)
    world.pod(claims=("c", "d"))
    until(lambda: world.phase() == "Running")
    assert sorted(calls) == [(GPUS, 2), (NICS, 1)]


def test_claim_of_two_pods_is_prepared_once_and_released_by_the_last(world):
    """A driver never learns of the second pod."""
    driver = world.driver()
    world.plugin(driver)
    kubelet = world.kubelet()
    world.claim("c", pods=("p", "q"))
    for name in ("p", "q"):
        world.pod(name)
        until(lambda name=name: world.phase(name) == "Running")
    assert kubelet.prepared() == {("default", "c"): frozenset({"uid-p", "uid-q"})}
    world.delete("p")
    until(lambda: world.found("p") is None)
    assert driver.calls == [("prepare", "c")]
    world.delete("q")
    until(lambda: world.found("q") is None)
    assert driver.calls == [("prepare", "c"), ("unprepare", "c")]
    assert not kubelet.prepared()


def test_pod_goes_only_when_its_claim_is_released(world):
    """A driver that cannot unprepare keeps the pod (k/k #129402); its containers are stopped all the same."""
    driver = world.driver()
    world.plugin(driver)
    kubelet = world.kubelet()
    world.claim("c")
    world.pod()
    until(lambda: world.phase() == "Running")
    driver.failing = "the GPU is busy"
    world.delete()
    until(lambda: driver.calls.count(("unprepare", "c")) >= 3)
    assert not kubelet.views("default", "p")
    assert world.found() is not None
    driver.failing = None
    until(lambda: world.found() is None)


def test_ended_pod_gives_its_claim_back_and_stays(world):
    """Whoever made it may still read its status."""
    driver = world.driver()
    world.plugin(driver)
    world.kubelet()
    world.claim("c")
    world.pod()
    until(lambda: world.phase() == "Running")
    world.client.merge_patch("/api/v1/namespaces/default/pods/p/status", {"status": {"phase": "Succeeded"}})
    until(lambda: ("unprepare", "c") in driver.calls)
    assert world.phase() == "Succeeded"


def test_unprepare_does_not_need_the_claim(world):
    """Case H1: the claim object is gone already."""
    driver = world.driver()
    world.plugin(driver)
    world.kubelet()
    world.claim("c")
    world.pod()
    until(lambda: world.phase() == "Running")
    world.api.store.remove("resourceclaims", "c")
    world.delete()
    until(lambda: world.found() is None)
    assert driver.calls[-1] == ("unprepare", "c")


def test_refused_claim_is_told_on_the_pod_and_tried_again(world):
    """The driver's words are in the Event, and the pod starts once it agrees."""
    driver = world.driver()
    world.plugin(driver)
    world.kubelet()
    driver.failing = "gpu-0 is still held"
    world.claim("c")
    world.pod()
    until(lambda: len(driver.calls) >= 3)
    (note,) = until(lambda: world.notes("FailedPrepareDynamicResources"))
    start = "Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources failed for ResourceClaim c: "
    assert note.startswith(start)
    assert "gpu-0 is still held" in note
    assert world.phase() == "Pending"
    driver.failing = None
    until(lambda: world.phase() == "Running")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({}, "DRA driver gpu.lanewise.dev is not registered"),
        ({"pods": ()}, "pod p (uid-p) is not allowed to use ResourceClaim c"),
        (None, 'fetch ResourceClaim c: resourceclaims.resource.k8s.io "c" not found'),
    ],
)
def test_pod_that_may_not_use_its_claim_is_told_so(world, wrong, words):
    """And it can be deleted, since no driver was asked: nothing is recorded before all is known."""
    world.kubelet()
    if wrong is not None:
        world.claim("c", **wrong)
    world.pod()
    (note,) = until(lambda: world.notes("FailedPrepareDynamicResources"))
    assert words in note
    world.delete()
    until(lambda: world.found() is None)


def test_claim_that_is_not_allocated_is_refused(world):
    """The scheduler has to do its part before."""
    world.plugin(world.driver())
    world.kubelet()
    claim = world.claim("c")
    del claim["status"]["allocation"]
    world.api.store.put(claim)
    world.pod()
    (note,) = until(lambda: world.notes("FailedPrepareDynamicResources"))
    assert note.endswith("prepare dynamic resources: ResourceClaim c: not allocated")


def test_generated_claim_of_another_pod_is_refused(world):
    """The status names it, but the pod is not its owner."""
    world.plugin(world.driver())
    world.kubelet()
    world.claim("c", owner={"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "uid-q", "controller": True})
    made = [{"name": "t", "resourceClaimName": "c"}]
    world.pod(claims=(), templates=("t",), resourceClaimStatuses=made)
    (note,) = until(lambda: world.notes("FailedPrepareDynamicResources"))
    assert note.endswith("ResourceClaim default/c was not created for Pod default/p (Pod is not owner)")


def test_partial_failure_asks_both_drivers_again(world):
    """Case H8: the prepared mark is of the claim, so a driver that had succeeded is asked again, and both unprepare."""
    gpus, nics = world.driver(), world.driver(NICS)
    world.plugin(gpus)
    world.plugin(nics)
    world.kubelet()
    nics.failing = "no port is up"
    world.claim("c", GPUS, NICS)
    world.pod()
    until(lambda: len(nics.calls) >= 2)
    assert gpus.calls.count(("prepare", "c")) >= 2
    nics.failing = None
    until(lambda: world.phase() == "Running")
    world.delete()
    until(lambda: world.found() is None)
    assert gpus.calls[-1] == nics.calls[-1] == ("unprepare", "c")


def test_force_deleted_pod_releases_its_claim(world):
    """Case H3: the kubelet hears of it when it is gone, and unprepares then."""
    driver = world.driver()
    world.plugin(driver)
    kubelet = world.kubelet()
    world.claim("c")
    world.pod()
    until(lambda: world.phase() == "Running")
    world.delete(grace=0)
    until(lambda: driver.calls[-1] == ("unprepare", "c"))
    until(lambda: not kubelet.prepared())
    until(lambda: not kubelet._workers)


def test_new_claim_of_the_same_name_waits_for_the_old(world):
    """Case H3: the old one is still prepared, so the new pod is told why it waits."""
    driver = world.driver()
    world.plugin(driver)
    world.kubelet()
    old = world.claim("c")["metadata"]["uid"]
    world.pod()
    until(lambda: world.phase() == "Running")
    driver.failing = "the GPU is busy"
    world.delete(grace=0)
    world.api.store.remove("resourceclaims", "c")
    world.claim("c", pods=("q",))
    world.pod("q")
    (note,) = until(lambda: world.notes("FailedPrepareDynamicResources"))
    assert f"old ResourceClaim with same name c and different UID {old} still exists" in note
    driver.failing = None
    until(lambda: world.phase("q") == "Running")


def test_pod_that_waits_for_its_driver_keeps_no_other(world):
    """Calls for different pods run side by side."""
    slow, quick = world.driver(), world.driver(NICS)
    slow.going.clear()
    world.plugin(slow)
    world.plugin(quick)
    world.kubelet()
    world.claim("c")
    world.pod()
    until(lambda: slow.calls)
    world.claim("d", NICS, pods=("q",))
    world.pod("q", claims=("d",))
    until(lambda: world.phase("q") == "Running")
    assert world.phase("p") == "Pending"
    slow.going.set()
    until(lambda: world.phase("p") == "Running")


def test_container_whose_cdi_device_is_unknown_is_not_made(world):
    """As a runtime refuses it, with its words on the pod."""
    driver = world.driver()
    world.plugin(driver)
    world.kubelet()
    prepare = driver.prepare

    def forget(ref, *, cancelled):
        devices = prepare(ref, cancelled=cancelled)
        for path in world.cdi.iterdir():
            path.unlink()
        return devices

    driver.prepare = forget
    uid = world.claim("c")["metadata"]["uid"]
    world.pod()
    (note,) = until(lambda: world.notes("Failed"))
    assert note == f"Error: CDI device injection failed: unresolvable CDI devices {GPUS}/claim={uid}-gpu"
    assert world.phase() == "Pending"


def test_restarted_kubelet_prepares_again(world):
    """What is prepared is remembered in memory only: the drivers have to repeat themselves."""
    driver = world.driver()
    world.plugin(driver)
    checkpoint = world.base / "state"
    first = world.kubelet(checkpoint=checkpoint)
    world.claim("c")
    world.pod()
    until(lambda: world.phase() == "Running")
    first.stop()
    second = world.kubelet(checkpoint=checkpoint)
    until(lambda: second.views("default", "p"))
    assert driver.calls == [("prepare", "c"), ("prepare", "c")]
    checkpoint.unlink()
    second.stop()
    third = world.kubelet(checkpoint=checkpoint)
    until(lambda: third.views("default", "p"))
    assert driver.calls == [("prepare", "c")] * 3


def test_pod_that_went_while_the_kubelet_was_down_is_cleaned_up_after(world):
    """The checkpoint names it."""
    driver = world.driver()
    world.plugin(driver)
    checkpoint = world.base / "state"
    first = world.kubelet(checkpoint=checkpoint)
    world.claim("c")
    world.pod()
    until(lambda: world.phase() == "Running")
    first.stop()
    assert [each["pods"] for each in json.loads(checkpoint.read_text())] == [["uid-p"]]
    world.api.store.remove("pods", "p")
    world.kubelet(checkpoint=checkpoint, reconcile_seconds=0.05)
    until(lambda: driver.calls[-1] == ("unprepare", "c"))
    until(lambda: json.loads(checkpoint.read_text()) == [])


def test_claim_for_extended_resources_reaches_the_container_that_asked(world):
    """The scheduler writes into the pod's status which request is whose."""
    driver = world.driver(x=["r0", "r1"])
    world.plugin(driver)
    kubelet = world.kubelet()
    world.claim("x", requests=("r0", "r1"))
    status = {
        "resourceClaimName": "x",
        "requestMappings": [{"containerName": "two", "resourceName": "example.com/gpu", "requestName": "r1"}],
    }
    world.pod(claims=(), containers={"one": [], "two": []}, extendedResourceClaimStatus=status)
    until(lambda: world.phase() == "Running")
    assert kubelet.cdi_names("default", "p", "one") == ()
    assert kubelet.views("default", "p")["two"].edits.env[-1] == "GOT_R1=x"


def test_node_is_there_and_ready(world):
    """Made by the kubelet; what others wrote about it stays when it comes again."""
    world.kubelet().stop()
    world.client.merge_patch(f"/api/v1/nodes/{NODE}/status", {"status": {"allocatable": {"example.com/x": "2"}}})
    world.kubelet()
    node = world.api.store.get("nodes", NODE)
    assert [(each["type"], each["status"]) for each in node["status"]["conditions"]] == [("Ready", "True")]
    assert node["status"]["allocatable"]["example.com/x"] == "2"
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == NODE
