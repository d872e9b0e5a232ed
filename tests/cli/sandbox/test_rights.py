"""What our programs may do in the sandbox."""

import pytest

from api.names import NAMESPACE
from cli.sandbox.apiserver.access import ANONYMOUS
from cli.sandbox.rights import account, authorize_by, granted
from cli.shipped import documents, shipped

RBAC = list(documents(shipped("deploy/manifests/rbac.yaml")))
PLUGIN, CONTROLLER = account(NAMESPACE, "lanewise-node"), account(NAMESPACE, "lanewise-controller")
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
LEASES = "/apis/coordination.k8s.io/v1/namespaces"


@pytest.mark.parametrize(
    ("user", "verb", "path"),
    [
        (PLUGIN, "get", "/apis/resource.k8s.io/v1/namespaces/team-a/resourceclaims/train"),
        (PLUGIN, "patch", "/apis/lanewise.dev/v1alpha1/nodeinventories/node-a/status"),
        (PLUGIN, "patch", f"{LEASES}/{NAMESPACE}/leases/x"),
        (PLUGIN, "get", "/api/v1/nodes/node-a"),
        (PLUGIN, "get", "/version"),
        (CONTROLLER, "create", SLICES),
        ("system:kube-scheduler", "delete", SLICES),
    ],
)
def test_what_deploy_grants_is_allowed(user: str, verb: str, path: str) -> None:
    """Kubernetes' own parts are not held to anything."""
    assert authorize_by(RBAC)(user, verb, path) is None


@pytest.mark.parametrize(
    ("user", "verb", "path"),
    [
        (PLUGIN, "create", SLICES),
        (PLUGIN, "list", SLICES),
        (PLUGIN, "patch", f"{LEASES}/kube-node-lease/leases/node-b"),
        (PLUGIN, "patch", "/apis/resource.k8s.io/v1/namespaces/team-a/resourceclaims/train/status"),
        (CONTROLLER, "patch", "/apis/lanewise.dev/v1alpha1/nodeinventories/node-a"),
        (CONTROLLER, "get", "/api/v1/namespaces/team-a/secrets/x"),
        (account(NAMESPACE, "default"), "get", "/api/v1/nodes/node-a"),
    ],
)
def test_nothing_else_is(user: str, verb: str, path: str) -> None:
    """Least of all slices for a node's plugin, and other namespaces' Leases."""
    assert authorize_by(RBAC)(user, verb, path) == "no role grants it"


def test_strangers_are_let_in_only_where_that_was_asked_for() -> None:
    """kubectl brings no token over plain HTTP."""
    assert authorize_by(RBAC)(ANONYMOUS, "get", "/api/v1/pods") == "no token was given"
    assert authorize_by(RBAC, strangers=True)(ANONYMOUS, "get", "/api/v1/pods") is None


def test_rules_of_an_unknown_kind_are_not_guessed_at() -> None:
    """One for a single object, say, would otherwise grant all of them."""
    role = {"kind": "ClusterRole", "metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resourceNames": ["x"]}]}
    binding = {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "b"},
        "roleRef": {"kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "n", "name": "s"}],
    }
    with pytest.raises(ValueError, match="resourceNames is not understood"):
        granted([role, binding])
    binding["subjects"][0]["kind"] = "Group"
    with pytest.raises(ValueError, match="binds a Group"):
        granted([{**role, "rules": []}, binding])
