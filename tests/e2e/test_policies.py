"""The admission policies and rights of deploy/, attacked with real tokens."""

import json

import pytest

from api.kube.client import Client
from api.kube.config import load
from api.kube.errors import Forbidden, Invalid, KubeError
from tests.cluster.lanewise import DRIVER, NAMESPACE, until
from tests.e2e.site import claim, pod

REFUSED = (Forbidden, Invalid)  # an admission policy answers 422 where it gives no other reason
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
INVENTORIES = "/apis/lanewise.dev/v1alpha1/nodeinventories"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


@pytest.fixture
def client_of(site):
    """Clients with the tokens of accounts in our namespace, closed at the end."""
    clients: list[Client] = []

    def make(account: str, *, node: str | None = None) -> Client:
        token = site.cluster.bound_token(NAMESPACE, account, node=node)
        clients.append(Client(load(site.cluster.kubeconfig_for(token), {}), user_agent="attacker"))
        return clients[-1]

    yield make
    for each in clients:
        each.close()


@pytest.fixture
def plugin(client_of):
    """Who holds the token of the node's plugin."""
    return client_of("lanewise-node", node="localhost")


@pytest.fixture
def other_node(site):
    """A second Node, with an inventory and a Lease of its own."""
    site.cluster.apply(json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-b"}}))
    site.cluster.apply(json.dumps(inventory("node-b")))
    site.cluster.apply(json.dumps(lease("lanewise-node-b", "node-b")))
    yield "node-b"
    site.cluster.kubectl("delete", "nodeinventory", "node-b", "--ignore-not-found")
    site.cluster.kubectl("delete", "lease", "-n", NAMESPACE, "lanewise-node-b", "--ignore-not-found")
    site.cluster.kubectl("delete", "node", "node-b")


def inventory(name: str) -> dict:
    return {
        "apiVersion": "lanewise.dev/v1alpha1",
        "kind": "NodeInventory",
        "metadata": {"name": name},
        "spec": {"bootID": "x", "driver": {}, "gpus": [], "nics": [], "leftOut": []},
    }


def lease(name: str, holder: str) -> dict:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"holderIdentity": holder},
    }


def slice_of(driver: str, node: str = "localhost") -> dict:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"generateName": "attack-"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": f"attack/{node}", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        },
    }


def test_plugin_cannot_write_another_nodes_inventory(plugin, other_node):
    """Case K1: neither by apply, nor its status, nor by making one for a node that has none."""
    for path, name in ((f"{INVENTORIES}/{other_node}", other_node), (f"{INVENTORIES}/node-c", "node-c")):
        with pytest.raises(REFUSED, match=f"the node plugin on localhost may not write the NodeInventory of {name}"):
            plugin.apply(path, inventory(name), field_manager="attacker", force=True)
    status = {**inventory(other_node), "status": {"instances": [{"id": "x", "registered": True, "lease": "x"}]}}
    del status["spec"]
    with pytest.raises(REFUSED, match="may not write"):
        plugin.apply(f"{INVENTORIES}/{other_node}/status", status, field_manager="attacker", force=True)


def test_token_without_a_node_writes_no_inventory(client_of):
    """A token Secret or a plain token says nothing of a node."""
    with pytest.raises(REFUSED, match="not bound to a pod on a node"):
        client_of("lanewise-node").apply(
            f"{INVENTORIES}/localhost", inventory("localhost"), field_manager="x", force=True
        )


def test_plugin_writes_leases_of_its_own_node_only(plugin, other_node):
    """It can neither make another node look alive nor take over or delete its Lease."""
    mine, theirs = lease("lanewise-node-mine", "localhost"), lease("lanewise-node-b", other_node)
    plugin.apply(f"{LEASES}/lanewise-node-mine", mine, field_manager="x", force=True)
    plugin.delete(f"{LEASES}/lanewise-node-mine")
    with pytest.raises(REFUSED, match="only Leases that are held by"):
        plugin.apply(f"{LEASES}/lanewise-node-c", lease("lanewise-node-c", "node-c"), field_manager="x", force=True)
    for attempt in (theirs, lease("lanewise-node-b", "localhost")):
        with pytest.raises(REFUSED, match="only Leases that are held by"):
            plugin.apply(f"{LEASES}/lanewise-node-b", attempt, field_manager="x", force=True)
    with pytest.raises(REFUSED, match="only Leases that are held by"):
        plugin.delete(f"{LEASES}/lanewise-node-b")


def test_plugin_writes_no_slices(plugin, site):
    """Not even for its own node, and it cannot delete one."""
    with pytest.raises(Forbidden):
        plugin.create(SLICES, slice_of(DRIVER))
    (ours,) = site.slices()
    with pytest.raises(Forbidden):
        plugin.delete(f"{SLICES}/{ours['metadata']['name']}")


def test_plugin_changes_no_claims(plugin, site):
    """It reads claims, as the kubelet names them, and writes none."""
    site.apply(claim("theirs"), pod("theirs", claims=["theirs"]))
    site.running("theirs")
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/theirs"
    assert plugin.get(path)["metadata"]["name"] == "theirs"
    with pytest.raises(Forbidden):
        plugin.merge_patch(path, {"metadata": {"labels": {"stolen": "yes"}}})
    with pytest.raises(Forbidden):
        plugin.merge_patch(f"{path}/status", {"status": {"allocation": None}})


def test_only_the_controller_publishes_our_devices(site):
    """Whoever else may write slices, an administrator included, may not write ours; another driver's are nobody's business."""
    admin = Client(load(site.cluster.admin_kubeconfig, {}), user_agent="attacker")
    with admin:
        with pytest.raises(REFUSED, match="only the Lanewise controller publishes devices of this driver"):
            admin.create(SLICES, slice_of(DRIVER))
        (ours,) = site.slices()
        ours["spec"]["devices"] = []
        with pytest.raises(REFUSED, match="may not update a ResourceSlice"):
            admin.replace(f"{SLICES}/{ours['metadata']['name']}", ours)
        foreign = admin.create(SLICES, slice_of("gpu.example.com"))
        admin.delete(f"{SLICES}/{foreign['metadata']['name']}")


def test_kubelet_may_wipe_and_devices_return(site):
    """The kubelet's deletecollection is let through, and what it deleted comes back because the plugin is alive."""
    wiped = {each["metadata"]["uid"] for each in site.slices()}
    selector = f"fieldSelector=spec.nodeName%3Dlocalhost,spec.driver%3D{DRIVER}"
    kubelet = site.cluster.layout.pki / "kubelet.kubeconfig"
    site.cluster.kubectl("--kubeconfig", str(kubelet), "delete", "--raw", f"{SLICES}?{selector}")
    until("they are back", lambda: site.slices() and not wiped & {s["metadata"]["uid"] for s in site.slices()}, 30)
    site.published()


def test_controller_cannot_read_claims_or_secrets(client_of):
    """The controller has no rights that it does not use."""
    controller = client_of("lanewise-controller")
    for path in ("/api/v1/secrets", "/apis/resource.k8s.io/v1/resourceclaims", "/api/v1/pods"):
        with pytest.raises(Forbidden):
            controller.get(path)
    assert controller.get("/api/v1/nodes")["items"]


def test_errors_are_kube_errors():
    """What the tests above catch is what callers catch."""
    assert all(issubclass(each, KubeError) for each in REFUSED)
