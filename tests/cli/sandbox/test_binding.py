"""How a pod gets its node on the in-process API server."""

import pytest

from api.kube.client import Client
from api.kube.errors import Conflict, Invalid, NotFound
from api.kube.server import Server

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def client(server):
    with Client(Server(server.url), user_agent="test") as made:
        yield made


def bind(client, pod, node, **meta):
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, **meta},
        "target": {"kind": "Node", "name": node},
    }
    return client.create(f"{PODS}/{pod}/binding", body)


def a_pod(client, name):
    return client.create(
        PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": []}}
    )


def test_binding_puts_the_pod_on_its_node_once(client):
    """The node and PodScheduled are there after it; a second binding is a conflict that names the node."""
    a_pod(client, "p")
    assert bind(client, "p", "node-a")["status"] == "Success"
    pod = client.get(f"{PODS}/p")
    assert pod["spec"]["nodeName"] == "node-a"
    assert [(c["type"], c["status"]) for c in pod["status"]["conditions"]] == [("PodScheduled", "True")]
    with pytest.raises(Conflict, match='pod p is already assigned to node "node-a"'):
        bind(client, "p", "node-b")


def test_binding_of_another_pod_of_the_name_is_refused(client):
    """The UID in a binding has to be the pod's."""
    a_pod(client, "p")
    with pytest.raises(Conflict):
        bind(client, "p", "node-a", uid="another")
    with pytest.raises(NotFound):
        bind(client, "q", "node-a")


def test_binding_without_a_node_is_invalid(client):
    """A target without a name is no target."""
    a_pod(client, "p")
    with pytest.raises(Invalid, match=r"target\.name: Required value"):
        bind(client, "p", "")
