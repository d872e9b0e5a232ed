"""The test cluster itself keeps its promises: what other tests blame on Lanewise must not be its fault."""

import json
import os
import ssl
import urllib.request
from pathlib import Path

import pytest

from tests.cluster import containers
from tests.cluster.build import binaries, kubernetes_version
from tests.cluster.cluster import Cluster, KubectlError
from tests.cluster.images import BUSYBOX

WAIT = "--timeout=60s"


def a_pod(name: str, command: str, *, host_network: bool = False) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "hostNetwork": host_network,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {
                        "name": "main",
                        "image": BUSYBOX,
                        "imagePullPolicy": "Never",
                        "command": ["/bin/sh", "-ec", command],
                    }
                ],
            },
        }
    )


def container_of(cluster: Cluster, pod: str) -> str:
    status = cluster.get(f"/api/v1/namespaces/default/pods/{pod}")["status"]
    return status["containerStatuses"][0]["containerID"]


@pytest.fixture
def pods(cluster):
    """Names of pods to delete at the end of the test."""
    names: list[str] = []
    yield names
    cluster.kubectl("delete", "pod", "--ignore-not-found", "--wait", *names)


def test_node_is_ready_and_of_the_pinned_version(cluster):
    """One node, named localhost."""
    columns = "custom-columns=:metadata.name,:status.nodeInfo.kubeletVersion,:status.nodeInfo.containerRuntimeVersion"
    rows = cluster.kubectl("get", "nodes", "--no-headers", "-o", columns)
    name, kubelet, runtime = rows.split()
    assert (name, kubelet) == ("localhost", kubernetes_version())
    assert runtime.startswith("containerd://")


def test_pod_runs_and_its_logs_can_be_read(cluster, pods):
    """Scheduler, kubelet, containerd and the way from the API server to the kubelet work."""
    pods.append("hello")
    cluster.apply(a_pod("hello", "echo hello from $HOSTNAME; sleep 1000"))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/hello", WAIT)
    assert cluster.kubectl("logs", "hello") == "hello from hello\n"
    assert cluster.kubectl("exec", "hello", "--", "echo", "again") == "again\n"


def test_pod_on_the_host_network_reaches_the_api_server_as_in_any_cluster(cluster, pods):
    """What the kubelet gives to every pod leads to the API server: address and port, the authority's file, a token."""
    pods.append("client")
    request = r"printf 'GET / HTTP/1.0\r\n\r\n' | nc $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT"
    cluster.apply(a_pod("client", f"{request}; sleep 1000", host_network=True))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/client", WAIT)
    folder = "/var/run/secrets/kubernetes.io/serviceaccount"
    host, port, token, authority = cluster.kubectl(
        "exec", "client", "--", "sh", "-c",
        f'cd {folder}; echo "$KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT $(cat token)" "$(cat ca.crt)"',
    ).split(maxsplit=3)  # fmt: skip
    assert f"https://{host}:{port}" == cluster.server
    assert "Client sent an HTTP request to an HTTPS server" in cluster.kubectl("logs", "client")
    url = f"https://{host}:{port}/apis/resource.k8s.io"
    asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asked, context=ssl.create_default_context(cadata=authority)) as answer:
        assert json.load(answer)["name"] == "resource.k8s.io"


def test_kubelet_restart_keeps_pods_running(cluster, pods):
    """The same container before and after."""
    pods.append("steady")
    cluster.apply(a_pod("steady", "sleep 1000"))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/steady", WAIT)
    before = container_of(cluster, "steady")
    cluster.restart_kubelet()
    cluster.kubectl("wait", "--for=condition=Ready", "pod/steady", WAIT)
    assert container_of(cluster, "steady") == before
    assert cluster.kubectl("exec", "steady", "--", "echo", "alive") == "alive\n"


def test_api_server_restart_keeps_what_it_held(cluster):
    """While it is away nobody answers; after it all objects are there."""
    cluster.kubectl("create", "configmap", "kept", "--from-literal=key=value")
    cluster.stop_apiserver()
    with pytest.raises(KubectlError, match="refused"):
        cluster.kubectl("get", "configmap", "kept")
    cluster.start_apiserver()
    assert cluster.kubectl("get", "configmap", "kept", "-o", "jsonpath={.data.key}") == "value"
    cluster.kubectl("delete", "configmap", "kept")


def test_token_bound_to_a_node_says_so(cluster):
    """The admission policies read the node's name from the token of a plugin's pod."""
    cluster.kubectl("create", "serviceaccount", "bound")
    kubeconfig = cluster.kubeconfig_for(cluster.bound_token("default", "bound", node="localhost"))
    who = json.loads(cluster.kubectl(f"--kubeconfig={kubeconfig}", "auth", "whoami", "-o", "json"))["status"][
        "userInfo"
    ]
    assert who["username"] == "system:serviceaccount:default:bound"
    assert who["extra"]["authentication.kubernetes.io/node-name"] == ["localhost"]
    cluster.kubectl("delete", "serviceaccount", "bound")


def test_second_cluster_comes_and_goes_beside_the_first_and_leaves_nothing(cluster, pods):
    """Wiping ends every process, mount and control group of the one and none of the other."""
    pods.append("neighbour")
    cluster.apply(a_pod("neighbour", "sleep 1000"))
    second = Cluster(binaries())
    try:
        second.start()
        second.apply(a_pod("tenant", "sleep 1000"))
        second.kubectl("wait", "--for=condition=Ready", "pod/tenant", WAIT)
        groups = containers.groups(second.layout.host)
        assert groups, "a running pod has control groups"
    finally:
        second.wipe()
    assert not second.dir.exists()
    assert [group for group in groups if group.exists()] == []
    assert processes_that_mention(str(second.dir)) == []
    assert str(second.dir) not in Path("/proc/self/mountinfo").read_text()
    cluster.kubectl("wait", "--for=condition=Ready", "pod/neighbour", WAIT)


def test_stopped_cluster_starts_again_with_its_data(cluster):
    """For the node it is a reboot: the pod is there again, in a new container."""
    second = Cluster(binaries())
    try:
        second.start()
        second.apply(a_pod("survivor", "sleep 1000").replace('"Never", "termination', '"Always", "termination'))
        second.kubectl("wait", "--for=condition=Ready", "pod/survivor", WAIT)
        before = container_of(second, "survivor")
        second.stop()
        assert processes_that_mention(str(second.dir)) == []
        again = Cluster(binaries(), second.dir)
        again.start()
        again.kubectl("wait", "--for=jsonpath={.status.containerStatuses[0].restartCount}=1", "pod/survivor", WAIT)
        assert container_of(again, "survivor") != before
    finally:
        second.wipe()


def processes_that_mention(text: str) -> list[str]:
    """The command lines of all living processes that name `text` in them or in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            environment = (process / "environ").read_bytes()
        except OSError:
            continue
        if process.name != str(os.getpid()) and text.encode() in command + environment:
            found.append(command.replace(b"\0", b" ").decode())
    return found
