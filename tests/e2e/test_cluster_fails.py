"""The kubelet, the API server, the controller or the machine itself goes away and comes back."""

import json
import uuid

from tests.cluster.cluster import KubectlError
from tests.cluster.lanewise import until
from tests.e2e.site import claim, pod, template


def container_id(site, name: str) -> str:
    """Changes when the container was made anew."""
    return site.pod(name)["status"]["containerStatuses"][0]["containerID"]


def test_kubelet_restarted_under_running_pods(site):
    """It wipes the slices when it starts; they come back, the pod keeps its container, and is released in the end."""
    site.apply(claim("steady"), pod("steady", claims=["steady"]))
    site.running("steady")
    before, uids = container_id(site, "steady"), {each["metadata"]["uid"] for each in site.slices()}
    site.cluster.restart_kubelet()
    until(
        "the slices are new ones",
        lambda: site.slices() and not uids & {s["metadata"]["uid"] for s in site.slices()},
        30,
    )
    site.published()
    assert container_id(site, "steady") == before
    site.delete(pod("steady"))
    until("nothing is left", lambda: site.kept() == (set(), set(), {}), 60)


def test_pod_deleted_while_the_kubelet_is_away(site):
    """The kubelet unprepares after its return; device, record and CDI file are free again."""
    gone = pod("gone", templates=["each"])
    site.apply(template("each"), gone)
    site.running("gone")
    site.cluster.stop_kubelet()
    site.delete(gone, wait=False)
    site.cluster.start_kubelet()
    until("nothing is left", lambda: site.kept() == (set(), set(), {}), 90)


def test_controller_away_while_pods_come_and_go(site):
    """What is published stays usable, prepare and unprepare need no controller, and its return writes nothing."""
    slices = [(s["metadata"]["uid"], s["metadata"]["resourceVersion"]) for s in site.slices()]
    site.controller.kill()
    site.apply(template("each"))
    for n in range(3):
        each = pod(f"alone-{n}", templates=["each"])
        site.apply(each)
        site.running(each)
        site.delete(each)
    until("nothing is left", lambda: site.kept() == (set(), set(), {}))
    said = len(site.controller.log)
    site.lanewise.start_controller()
    until("the controller looked at the node", lambda: "node reconciled" in site.controller.log[said:])
    site.apply(claim("then"), pod("then", claims=["then"]))
    site.running("then")
    assert [(s["metadata"]["uid"], s["metadata"]["resourceVersion"]) for s in site.slices()] == slices


def test_controller_away_while_plugin_and_kubelet_fail(site):
    """The kubelet wipes the slices and nobody brings them back, but the running pod stays, ends and is released."""
    site.apply(claim("outlasts"), pod("outlasts", claims=["outlasts"]))
    site.running("outlasts")
    before = container_id(site, "outlasts")
    site.controller.kill()
    site.plugin.kill()
    site.lanewise.start_plugin()
    site.cluster.restart_kubelet()
    until("the kubelet wiped the slices", lambda: not site.slices(), 60)
    assert container_id(site, "outlasts") == before
    site.delete(pod("outlasts"))
    until("it is released", lambda: site.kept() == (set(), set(), {}), 60)
    site.lanewise.start_controller()
    site.published(60)


def test_api_server_restarted(site):
    """Watches, Leases and pods go on; a pod that ends meanwhile is released without the API server."""
    site.apply(claim("through"), pod("through", claims=["through"]), template("each"))
    site.running("through")
    site.cluster.restart_apiserver()
    site.published(90)
    after = pod("after", templates=["each"])
    site.apply(after)
    site.running("after", seconds=120)
    site.agrees(60)


def test_reboot(site):
    """Everything stops, the boot id is new, the CDI directory empty: the pod's claim is prepared again, with the same GPU."""
    site.apply(claim("stays"), pod("stays", claims=["stays"], restart="Always"))
    site.running("stays")
    before, first = site.seen("stays"), container_id(site, "stays")
    site.plugin.kill()
    site.controller.kill()
    site.cluster.stop()
    for path in site.cluster.cdi_dir.iterdir():
        path.unlink()
    boot_id = site.lanewise.plugin_dir / "machine/proc/sys/kernel/random/boot_id"
    boot_id.write_text(f"{uuid.uuid4()}\n")
    site.cluster.start()
    site.make_whole()
    until("the pod has a new container", lambda: container_id(site, "stays") != first, 120)
    site.running("stays", seconds=120)
    assert site.seen("stays") == before
    assert site.inventory()["spec"]["bootID"] == boot_id.read_text().strip()
    site.agrees()


def test_force_deleted_pod_and_its_claim_recreated_under_the_same_name(site):
    """The new claim waits until the old one is released, then gets a GPU; no device is ever held twice."""
    old = pod("again", claims=["again"], grace_seconds=5)
    site.apply(claim("again"), old)
    site.running("again")
    (old_uid,) = site.kept()[0]
    site.delete(old, force=True, wait=False)
    site.delete(claim("again"), wait=True)
    site.apply(claim("again"), pod("again", claims=["again"]))
    site.running("again", seconds=180)
    until("the old claim is released", lambda: old_uid not in site.kept()[0], 120)
    site.agrees(60)


def test_node_object_deleted_and_created_again(site):
    """Inventory, Lease and slices go with the Node, and come back with it, owned by the new one."""
    node = site.cluster.get("/api/v1/nodes/localhost")
    site.cluster.kubectl("delete", "node", "localhost", "--wait=true")
    site.cluster.restart_kubelet()
    until(
        "a new Node is there",
        lambda: site.cluster.get("/api/v1/nodes/localhost")["metadata"]["uid"] != node["metadata"]["uid"],
        60,
    )
    uid = site.cluster.get("/api/v1/nodes/localhost")["metadata"]["uid"]
    site.lanewise.renew_token()  # the old one was bound to the old Node

    def owned_anew() -> bool:
        try:
            inventory = json.loads(site.cluster.kubectl("get", "nodeinventory", "localhost", "-o", "json"))
        except KubectlError:
            return False
        owners = {o["uid"] for each in [inventory, *site.slices()] for o in each["metadata"].get("ownerReferences", [])}
        return owners == {uid}

    until("inventory and slices belong to the new Node", owned_anew, 90)
    site.published(60)
    site.apply(claim("new"), pod("new", claims=["new"]))
    site.running("new", seconds=120)
