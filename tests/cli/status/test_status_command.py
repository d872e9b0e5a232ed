"""`lanewise status` against an API server: what it asks, with which rights, and what it prints as things change."""

import json
import queue
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from api.kube.client import Client
from api.kube.credentials import FixedToken
from api.kube.paths import LEASES
from api.kube.server import Server
from api.refusals import Refused
from api.timestamps import micro_time, utc_now
from cli.main import main
from cli.status import command
from cli.status.asking import Asked, ask, follow
from cli.status.report import Scope, State
from tests.support.controlled_cluster import NAMESPACE, a_town
from tests.support.gpus import a_machine
from tests.support.held_devices import DRIVER, a_gpu_class, a_held_claim, a_pod, a_result

SECONDS = 20
RBAC = Path(__file__).parents[3] / "deploy/manifests/rbac.yaml"
ALL = Asked(DRIVER, NAMESPACE, Scope())
GPU = "gpu-10-00-0"


@pytest.fixture
def town():
    """A node of two GPUs that a controller has published, and a pod that has one of them."""
    with a_town(tokens={"v": "viewer"}) as town:
        owner = town.node()
        town.plugin(owner, a_machine(2))
        renew(town, utc_now())
        put(town, a_gpu_class(), a_held_claim("train", a_result(GPU), pods=("p",)), a_pod("p", {"c": "train"}))
        put(town, slice_of(GPU, "gpu-18-00-0"))
        yield town


def put(town, *objects):
    for obj in objects:
        town.api.store.put(obj)


def slice_of(*names, **device):
    pool = {"name": f"node-a/{DRIVER}", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": name, **device} for name in names]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "node-a-1"},
        "spec": {"driver": DRIVER, "nodeName": "node-a", "pool": pool, "devices": devices},
    }


def renew(town, moment):
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "lease-i1", "namespace": NAMESPACE},
        "spec": {"holderIdentity": "node-a", "renewTime": micro_time(moment)},
    }
    town.client.apply(LEASES.path(NAMESPACE, "lease-i1"), body, field_manager="test", force=True)


def viewer(town):
    return Client(Server(town.api.url, tokens=FixedToken("v")), user_agent="status")


def end(town, ended, thread):
    """End a watching thread; something changes, so that it looks up."""
    ended.set()
    renew(town, utc_now())
    thread.join(SECONDS)
    assert not thread.is_alive()


def states(report):
    return [(device.name, device.state) for node in report.nodes for device in node.devices]


def test_it_prints_who_holds_what(town, tmp_path, capsys):
    """Through the command, a kubeconfig and HTTP; the context is named."""
    kubeconfig = str(town.api.kubeconfig(tmp_path / "kubeconfig", "v"))
    assert main(["status", "--kubeconfig", kubeconfig, "--context", "sandbox"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("node-a: 2 GPUs: 1 free, 1 in use\n")
    assert f"  {GPU}  in use  team-a     p    main        train" in out
    assert "Lease fresh" in out
    assert main(["status", "--kubeconfig", kubeconfig, "-o", "json", "--pod", "team-a/p"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [device["name"] for node in told["nodes"] for device in node["devices"]] == [GPU]


def test_a_context_that_is_not_there_is_refused(town, tmp_path, capsys):
    """With those that are."""
    kubeconfig = str(town.api.kubeconfig(tmp_path / "kubeconfig"))
    assert main(["status", "--kubeconfig", kubeconfig, "--context", "mars"]) == 2
    assert capsys.readouterr().err == f"error: {kubeconfig}: there is no context 'mars' (use one of: sandbox)\n"


def test_a_node_without_gpus_has_exit_code_1(town, tmp_path, capsys):
    """So that scripts can ask."""
    kubeconfig = str(town.api.kubeconfig(tmp_path / "kubeconfig"))
    assert main(["status", "--kubeconfig", kubeconfig, "--node", "node-b"]) == command.NOT_FOUND
    assert capsys.readouterr().out == f"node node-b has no NodeInventory, and {DRIVER} has no device there\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--pod", "a/b/c"], "--pod: 'a/b/c' is no pod (write NAMESPACE/NAME, or NAME and -n NAMESPACE)"),
        (["--pod", "/p"], "--pod: '/p' is no pod (write NAMESPACE/NAME, or NAME and -n NAMESPACE)"),
        (["--pod", "a/p", "-n", "b"], "--pod: 'a/p' is not in namespace b (leave -n out)"),
    ],
)
def test_a_pod_that_cannot_be_meant_is_refused(town, tmp_path, capsys, arguments, says):
    """Exit code 2 and one sentence."""
    kubeconfig = str(town.api.kubeconfig(tmp_path / "kubeconfig"))
    assert main(["status", "--kubeconfig", kubeconfig, *arguments]) == 2
    assert capsys.readouterr().err == f"error: {says}\n"


def test_a_pod_without_a_namespace_is_in_the_contexts_or_the_one_given(town, tmp_path, capsys):
    """As with kubectl: `default` where the context names none."""
    kubeconfig = str(town.api.kubeconfig(tmp_path / "kubeconfig"))
    assert main(["status", "--kubeconfig", kubeconfig, "--pod", "p"]) == 0
    assert capsys.readouterr().out == f"pod default/p has no device of {DRIVER} and waits for none\n"
    assert main(["status", "--kubeconfig", kubeconfig, "--pod", "p", "-n", "team-a"]) == 0
    assert GPU in capsys.readouterr().out


def test_of_a_namespace_only_its_own_pods_and_claims_are_asked_for(town):
    """So the rights of one namespace are enough for them."""
    town.api.forget_requests()
    with viewer(town) as client:
        report = ask(client, Asked(DRIVER, NAMESPACE, Scope(namespace="team-a")), utc_now)
    assert states(report) == [(GPU, State.IN_USE)]
    paths = [request.path for request in town.api.requests]
    assert not {"/api/v1/pods", "/apis/resource.k8s.io/v1/resourceclaims"} & set(paths)


def test_every_missing_right_is_named_at_once():
    """Verb, resource and where, with the API server's words and the remedy."""

    def refuse(user, verb, path):
        return "no role grants it" if path.endswith(("/pods", "/leases")) else None

    with (
        a_town(tokens={"v": "viewer"}, authorize=refuse) as town,
        viewer(town) as client,
        pytest.raises(Refused) as refused,
    ):
        ask(client, ALL, utc_now)
    told = refused.value.reason
    assert told.remedy == "bind the ClusterRole lanewise-viewer to the user"
    first, second = told.reasons
    assert first.what.startswith(f"this user may not list leases.coordination.k8s.io in namespace {NAMESPACE}: ")
    assert second.what.startswith("this user may not list pods in the whole cluster: ")
    assert "no role grants it" in second.what


def test_an_object_that_cannot_be_read_is_not_left_out(town):
    """Without it a device could look free that it holds; and a traceback tells nobody anything."""
    put(town, {**a_held_claim("odd", a_result(GPU)), "spec": {"devices": {"requests": [7]}}})
    with viewer(town) as client, pytest.raises(Refused, match="resourceclaims: an object of the answer cannot be read"):
        ask(client, ALL, utc_now)


def test_the_viewers_role_holds_what_it_asks_and_no_more():
    """list for one status, list and watch for --watch, and nothing else (`get` is for kubectl)."""
    asked = set()

    def note(user, verb, path):
        if user == "viewer":
            parts = path.strip("/").split("/")
            group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
            asked.add((group, rest[2] if rest[0] == "namespaces" else rest[0], verb))

    drawn, ended = queue.Queue(), threading.Event()
    with a_town(tokens={"v": "viewer"}, authorize=note) as town, viewer(town) as client:
        thread = threading.Thread(
            target=follow, args=(client, ALL, lambda report, _: drawn.put(report), ended, utc_now)
        )
        thread.start()
        drawn.get(timeout=SECONDS)
        # The sandbox serves no DeviceTaintRules, so a watch on them cannot be seen here.
        assert town.api.wait_for_request(lambda request: "watch" in request.query and "/pods" in request.path)
        end(town, ended, thread)
    roles = {
        obj["metadata"]["name"]: obj for obj in yaml.safe_load_all(RBAC.read_text()) if obj["kind"] == "ClusterRole"
    }
    granted = {
        (group, resource, verb)
        for rule in roles["lanewise-viewer"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    rules = {("resource.k8s.io", "devicetaintrules", verb) for verb in ("list", "watch")}
    assert asked | rules == {right for right in granted if right[2] != "get"}
    assert {right[2] for right in granted} == {"get", "list", "watch"}


class Clock:
    """Now, plus what a test adds."""

    def __init__(self):
        self.ahead = timedelta()

    def __call__(self):
        return datetime.now(UTC) + self.ahead


def test_watching_draws_each_change_and_nothing_else(town):
    """A pod goes, a device is tainted; a renewal of the Lease draws nothing."""
    drawn, ended, clock = queue.Queue(), threading.Event(), Clock()
    with viewer(town) as client:
        thread = threading.Thread(
            target=follow, args=(client, ALL, lambda report, troubles: drawn.put((report, troubles)), ended, clock)
        )
        thread.start()
        try:
            report, troubles = drawn.get(timeout=SECONDS)
            assert (states(report), troubles) == ([(GPU, State.IN_USE), ("gpu-18-00-0", State.FREE)], ())
            renew(town, utc_now())
            town.client.delete("/apis/resource.k8s.io/v1/namespaces/team-a/resourceclaims/train")
            report, _ = drawn.get(timeout=SECONDS)
            assert states(report) == [(GPU, State.FREE), ("gpu-18-00-0", State.FREE)]
            put(town, slice_of(GPU, "gpu-18-00-0", taints=[{"key": "k", "effect": "NoSchedule"}]))
            report, _ = drawn.get(timeout=SECONDS)
            assert states(report) == [(GPU, State.TAINTED), ("gpu-18-00-0", State.TAINTED)]
            clock.ahead = timedelta(hours=1)
            renew(town, utc_now())  # something happens, and the clock is looked at
            report, _ = drawn.get(timeout=SECONDS)
            assert [instance.fresh for instance in report.nodes[0].instances] == [False]
        finally:
            end(town, ended, thread)
    assert drawn.empty()
