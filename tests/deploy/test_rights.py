"""Both programs at work under the very roles of deploy/: nothing they do is refused, and nothing they may do is unused."""

import tempfile
import threading
from pathlib import Path

import pytest
import yaml
from structlog.testing import capture_logs

from api.kube.client import Client
from api.kube.credentials import FixedToken
from api.kube.lease import LeaseTiming
from api.kube.paths import EVENTS, LEASES, NODE_INVENTORIES
from api.kube.server import Server
from cli.sandbox.kubelet import Registry
from controller import reconcile
from controller.main import serve
from controller.settings import Settings
from kubeletplugin import report
from kubeletplugin.plugin import Plugin
from kubeletplugin.settings import parse
from tests.support.controlled_cluster import NAMESPACE, a_town
from tests.support.machines import TWO_GPUS

RBAC = list(yaml.safe_load_all((Path(__file__).parents[2] / "deploy/manifests/rbac.yaml").read_text()))
PLUGIN, CONTROLLER = (f"system:serviceaccount:{NAMESPACE}:lanewise-{name}" for name in ("node", "controller"))
DRIVER = "gpu.lanewise.dev"

CREATED_BY_APPLY = {
    (PLUGIN, "coordination.k8s.io", "leases", "create"),
    (PLUGIN, "lanewise.dev", "nodeinventories", "create"),
}
"""An apply that makes an object needs `create` too (kube-apiserver, endpoints/handlers/patch.go); ours here asks for patch."""


def granted():
    """(user, group, resource, verb) → whether in our namespace only; from roles and bindings."""
    roles = {(obj["kind"], obj["metadata"]["name"]): obj["rules"] for obj in RBAC if obj["kind"].endswith("Role")}
    found = {}
    for binding in (obj for obj in RBAC if obj["kind"].endswith("RoleBinding")):
        for subject in binding["subjects"]:
            user = f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
            for rule in roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]:
                for group in rule["apiGroups"]:
                    for resource in rule["resources"]:
                        for verb in rule["verbs"]:
                            found[user, group, resource, verb] = binding["kind"] == "RoleBinding"
    return found


class Guard:
    """Refuses what no role grants, and remembers what was asked."""

    def __init__(self):
        self.granted = granted()
        self.used = set()
        self.refused = set()

    def __call__(self, user, verb, path):
        if user not in (PLUGIN, CONTROLLER):
            return None
        parts = path.strip("/").split("/")
        group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
        namespace = ""
        if rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        asked = (user, group, "/".join((rest[0], *rest[2:])), verb)
        within = self.granted.get(asked)
        if within is None or (within and namespace != NAMESPACE):
            self.refused.add((*asked, namespace))
            return "no role grants it"
        self.used.add(asked)
        return None


@pytest.fixture
def guard():
    return Guard()


@pytest.fixture
def town(guard):
    with capture_logs(), a_town(tokens={"p": PLUGIN, "c": CONTROLLER}, authorize=guard) as town:
        town.api.store.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})
        yield town


@pytest.fixture
def base():
    """Below /tmp, because a socket path has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="lw-", dir="/tmp") as path:
        (Path(path) / "reg").mkdir()
        (Path(path) / "machine.yaml").write_text(TWO_GPUS)
        yield Path(path)


def client(town, token):
    return Client(Server(town.api.url, tokens=FixedToken(token)), user_agent="programs", pool_size=8)


def a_claim(town, name):
    result = {"request": "gpu", "driver": DRIVER, "pool": f"node-a/{DRIVER}", "device": "gpu-53-00-0"}
    obj = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]}},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }
    return "team-a", name, town.api.store.put(obj)["metadata"]["uid"]


def test_roles_hold_what_the_programs_use_and_no_more(guard, town, base, monkeypatch):
    """A story in which each of them does everything it ever does."""
    monkeypatch.setattr(report, "RENEW_SECONDS", 0.3)
    monkeypatch.setattr(reconcile, "FORGET_SECONDS", 2.5)
    told = threading.Event()
    town.node()
    with client(town, "p") as plugins, client(town, "c") as controllers, Registry(base / "reg") as kubelet:
        controller = threading.Thread(
            target=serve,
            args=(Settings(identity="one", stale_seconds=1.5), controllers, told),
            kwargs={"timing": LeaseTiming(lease_seconds=1, renew_seconds=0.7, retry_seconds=0.1)},
        )
        controller.start()
        flags = ("node-name=node-a", f"plugin-dir={base}/plug", f"registry-dir={base}/reg", f"cdi-dir={base}/cdi")
        settings = parse([f"--{flag}" for flag in (*flags, f"machine={base}/machine.yaml", "machine-nodes=plain")], {})
        plugin = Plugin(settings, plugins, version="0.1.0")
        plugin.start()
        try:
            kubelet.scan()
            town.wait(lambda: town.condition("Registered").get("status") == "True")
            plays_its_part(town, kubelet)
            # Hardware changes while somebody else writes the slice: updated, refused, looked at, updated.
            town.api.faults.fail(409, times=1, method="PUT", path="/apis/resource.k8s.io")
            fewer = "\n".join(line for line in TWO_GPUS.splitlines() if "0000:64:00.0" not in line)
            (base / "machine.yaml").write_text(fewer)
            plugin._discovery.poke()
            town.wait(lambda: town.taints() == {"off-the-bus"})
            # An instance that was killed: silent, tainted, asked for, forgotten.
            town.renew("killed")
            town.register(instance="killed")
            town.wait(lambda: not town.api.store.get("leases", "lease-killed", NAMESPACE))
            # Another master of the GPUs: the slices go.
            town.node(nvidia_com__gpu="2")
            town.wait(lambda: not town.slices())
        finally:
            plugin.stop()
            told.set()
            controller.join(20)
    assert guard.refused == set()
    assert guard.used | CREATED_BY_APPLY == guard.granted.keys()


def plays_its_part(town, kubelet):
    """Devices published, a claim prepared, another refused twice, both released."""
    town.wait(lambda: len(town.devices()) == 2)
    first, second = a_claim(town, "train"), a_claim(town, "serve")
    driver = kubelet.plugin(DRIVER)
    assert driver.prepare([first]).claims[first[2]].error == ""
    for _ in range(2):
        assert "held by" in driver.prepare([second]).claims[second[2]].error
    for claim in (first, second):
        assert driver.unprepare([claim]).claims[claim[2]].error == ""
    assert town.api.wait_for_request(
        lambda request: request.method == "PATCH" and request.path.startswith(EVENTS.path("team-a"))
    )


@pytest.mark.parametrize(
    ("user", "method", "path"),
    [
        ("p", "GET", "/apis/resource.k8s.io/v1/resourceslices"),
        ("p", "POST", "/apis/resource.k8s.io/v1/resourceslices"),
        ("p", "GET", LEASES.path(NAMESPACE)),
        ("p", "DELETE", LEASES.path("kube-node-lease", "node-b")),
        ("p", "DELETE", NODE_INVENTORIES.path(name="node-b")),
        ("p", "GET", "/api/v1/namespaces/team-a/secrets/x"),
        ("c", "GET", "/api/v1/namespaces/team-a/secrets/x"),
        ("c", "DELETE", LEASES.path("kube-system", "kube-scheduler")),
        ("c", "PATCH", NODE_INVENTORIES.path(name="node-a")),
    ],
)
def test_what_neither_may_do(guard, user, method, path):
    """The rights somebody would look for first."""
    verb = {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete"}[method]
    assert guard({"p": PLUGIN, "c": CONTROLLER}[user], verb, path) == "no role grants it"
