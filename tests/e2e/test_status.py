"""`lanewise status`, asked by a user who may only look, tells the truth at each step: what pods see themselves."""

import json
import subprocess
import sys
import time

import pytest

from tests.cluster.lanewise import NAMESPACE, ROOT, until
from tests.cluster.pki import NODE
from tests.e2e.site import CLASS, claim, pod, request, template

VIEWER = "status-viewer"


class Status:
    """The command, with the rights of the ClusterRole lanewise-viewer."""

    def __init__(self, kubeconfig):
        self._command = [sys.executable, "-m", "cli.main", "status", f"--kubeconfig={kubeconfig}"]

    def run(self, *arguments):
        return subprocess.run(
            [*self._command, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
        ).stdout

    def told(self, *arguments):
        return json.loads(self.run("-o", "json", *arguments))

    def devices(self, *arguments):
        (node,) = self.told(*arguments)["nodes"]
        assert node["name"] == NODE
        return {device["name"]: device for device in node["devices"]}

    def states(self):
        """Device → state, of those that are not free."""
        return {name: device["state"] for name, device in self.devices().items() if device["state"] != "Free"}

    def has(self, name, container="main"):
        """Environment name → uuid and product of the devices that the container of this pod is said to have."""
        return {
            device["name"].upper().replace("-", "_"): (device["uuid"], device["productName"])
            for device in self.devices("--pod", f"default/{name}").values()
            for hold in (*device["holders"], *device["adminAccess"])
            for each in hold["pods"]
            if each["name"] == name and container in each["containers"]
        }

    def watching(self):
        return subprocess.Popen(
            [*self._command, "-o", "json", "--watch"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )


@pytest.fixture
def status(site):
    """A service account that is bound to the role, and the command with its token."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": VIEWER, "namespace": NAMESPACE}}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": VIEWER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "lanewise-viewer"},
        "subjects": [{"kind": "ServiceAccount", "name": VIEWER, "namespace": NAMESPACE}],
    }
    site.cluster.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": [account, binding]}))
    try:
        yield Status(site.cluster.kubeconfig_for(site.cluster.bound_token(NAMESPACE, VIEWER)))
    finally:
        site.cluster.kubectl("delete", "clusterrolebinding", VIEWER)
        site.cluster.kubectl("delete", "serviceaccount", VIEWER, "-n", NAMESPACE)


def seen(site, name, container="main"):
    """What the container sees in its environment, in the same form."""
    found = site.seen(name, container)
    return {key: (uuid, found.products[key]) for key, uuid in found.uuids.items()}


def test_status_tells_the_truth_through_a_pods_life(site, status):
    """Nothing, one pod, a shared claim, a template, two requests, an extended resource, a monitor, and nothing again."""
    assert status.states() == {}
    (node,) = status.told()["nodes"]
    assert node["summary"] == {"gpus": 8, "published": 8, "inUse": 0, "free": 8, "tainted": 0, "leftOut": 0}
    assert [(each["registered"], each["leaseFresh"]) for each in node["instances"]] == [(True, True)]
    assert node["ready"] is True

    site.apply(claim("one"), pod("one", claims=["one"]))
    site.running("one")
    assert status.has("one") == seen(site, "one") != {}
    assert len(status.states()) == 1

    site.apply(
        claim("shared"), pod("first", claims=["shared"], containers=["a", "b"]), pod("second", claims=["shared"])
    )
    site.apply(template("whole"), pod("generated", templates=["whole"]))
    two = pod("two", claims=["two"], containers=["left", "right"])
    for container in two["spec"]["containers"]:
        container["resources"] = {"claims": [{"name": "claim-0", "request": container["name"]}]}
    site.apply(claim("two", request("left"), request("right", count=2)), two)
    site.apply(pod("classic", limits={"nvidia.com/gpu": "1"}))
    site.running("first", "second", "generated", "two", "classic")
    for name, container in (
        ("first", "a"),
        ("first", "b"),
        ("second", "main"),
        ("generated", "main"),
        ("two", "left"),
        ("two", "right"),
        ("classic", "main"),
    ):
        assert status.has(name, container) == seen(site, name, container) != {}, (name, container)
    assert len(status.has("two", "right")) == 2
    assert sorted(status.states().values()) == ["InUse"] * 7

    site.cluster.kubectl("label", "namespace", "default", "resource.kubernetes.io/admin-access=true", "--overwrite")
    everything = {"exactly": {"deviceClassName": CLASS, "allocationMode": "All", "adminAccess": True}, "name": "all"}
    try:
        site.apply(claim("watch", everything), pod("watch", claims=["watch"]))
        site.running("watch")
        assert status.has("watch") == seen(site, "watch")
        assert len(status.has("watch")) == 8
        assert len(status.states()) == 7, "a monitor takes nothing"
    finally:
        site.delete(pod("watch"), claim("watch"))
        site.cluster.kubectl("label", "namespace", "default", "resource.kubernetes.io/admin-access-")

    site.apply(claim("late", request(count=2)), pod("late", claims=["late"]))
    site.pending_because("late", "cannot allocate all claims")
    (waiting,) = status.told()["waiting"]
    assert (waiting["claim"], [each["name"] for each in waiting["pods"]]) == ("late", ["late"])
    assert "cannot allocate all claims" in waiting["pods"][0]["why"]
    assert "claim default/late (gpu.lanewise.dev): pod late: " in status.run()

    site.delete(pod("late"), pod("first"), pod("generated"), pod("classic"), two)
    until("the template's and the extended resource's claims are gone", lambda: len(site.claims()) == 4)
    until("what ended is free", lambda: sorted(status.states().values()) == ["InUse"] * 2)
    assert status.has("second") == seen(site, "second") != {}
    site.clean()
    assert status.states() == {}
    assert status.told()["waiting"] == []


def test_status_tells_what_is_wrong_with_a_node(site, status):
    """Its plugin is dead: tainted, then wiped, while the pod runs on; cordoned; back again."""
    site.apply(claim("kept"), pod("kept", claims=["kept"]))
    site.running("kept")
    (device,) = status.states()
    site.plugin.stop()
    until("every device is tainted", lambda: site.devices() and all(d.get("taints") for d in site.devices().values()))
    told = status.devices()
    assert {name: each["state"] for name, each in told.items()} == {
        name: "InUse" if name == device else "Tainted" for name in told
    }
    assert {taint["key"] for each in told.values() for taint in each["taints"]} == {"lanewise.dev/unreachable"}
    text = status.run()
    assert "all devices: lanewise.dev/unreachable=unregistered:NoSchedule since " in text
    assert "no plugin instance is there" in text

    site.cluster.kubectl("cordon", NODE)
    try:
        assert "the Node is cordoned" in status.run()
        until("the kubelet wiped the slices", lambda: not site.slices(), 60)
        assert status.has("kept") == seen(site, "kept") != {}
        assert set(status.states().values()) == {"InUse", "Unpublished"}
        assert status.devices()[device]["published"] is False
    finally:
        site.cluster.kubectl("uncordon", NODE)
    site.lanewise.start_plugin()
    site.published()
    assert status.states() == {device: "InUse"}


def test_watching_shows_a_pod_come_and_go(site, status):
    """Each change is a document; nothing is asked for again and again."""
    process = status.watching()
    try:

        def next_states():
            (node,) = json.loads(process.stdout.readline())["nodes"]
            return sorted(device["state"] for device in node["devices"])

        assert next_states() == ["Free"] * 8
        site.apply(claim("brief"), pod("brief", claims=["brief"]))
        site.running("brief")
        while "InUse" not in next_states():
            pass
        site.delete(pod("brief"))
        ends = time.monotonic() + 60
        while next_states() != ["Free"] * 8:
            assert time.monotonic() < ends
    finally:
        process.terminate()
        process.communicate(timeout=20)


def test_status_names_the_right_that_is_missing(site):
    """Of the API server's own refusal."""
    token = site.cluster.bound_token(NAMESPACE, "lanewise-node", node=NODE)
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "status", f"--kubeconfig={site.cluster.kubeconfig_for(token)}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "error: this user may not list pods in the whole cluster: pods is forbidden: " in done.stderr
    assert "(bind the ClusterRole lanewise-viewer to the user)" in done.stderr
