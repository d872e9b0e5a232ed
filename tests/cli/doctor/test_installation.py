"""The cluster and what is installed in it: the shipped manifests are well, and each departure from them is found."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from api.health import LOST, OFF_THE_BUS, known
from cli.doctor import installation
from cli.doctor.cluster import CRD, POLICIES, Cluster, Unknown
from cli.doctor.rights import FORBIDDEN, NEEDED, PLUGIN_ACCOUNT
from cli.sandbox.rights import account, granted
from cli.status.facts import Lease
from controller.conflicts import ForeignSlice
from tests.support.diagnosis import lines, trouble
from tests.support.gpus import a_gpu, a_machine, an_instance, an_inventory

DEPLOY = Path(__file__).parents[3] / "deploy"
DRIVER, NAMESPACE = "gpu.lanewise.dev", "lanewise-system"
NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
INSTANCE = an_instance()


def shipped(name):
    return {
        (obj["kind"], obj["metadata"]["name"]): obj for obj in yaml.safe_load_all((DEPLOY / name).read_text()) if obj
    }


def with_condition(obj, **conditions):
    """The object with conditions, each `type=(status, reason, message)`."""
    told = [
        {"type": kind, "status": status, "reason": reason, "message": message}
        for kind, (status, reason, message) in conditions.items()
    ]
    return {**obj, "status": {**(obj.get("status") or {}), "conditions": told}}


def inventory(
    machine=None, published=("True", "Published", "2 devices in 1 slice"), registered=("True", "Registered", "yes")
):
    return with_condition(
        an_inventory(machine=machine, instances=(INSTANCE,)), Published=published, Registered=registered
    )


def a_node(**allocatable):
    node = {"metadata": {"name": "node-a", "uid": "n"}, "status": {"allocatable": allocatable}}
    return with_condition(node, Ready=("True", "KubeletReady", "fine"))


MANIFESTS = shipped("manifests/policies.yaml")
WELL = Cluster(
    driver=DRIVER,
    namespace=NAMESPACE,
    node="node-a",
    version="v1.37.2",
    serves_dra=True,
    gates={"DRADeviceTaints": True, "DRAExtendedResource": True, "SomethingElse": False},
    crd=with_condition(
        shipped("crds/nodeinventories.yaml")["CustomResourceDefinition", CRD], Established=("True", "", "")
    ),
    policies={name: MANIFESTS["ValidatingAdmissionPolicy", name] for name in POLICIES},
    bindings={name: MANIFESTS["ValidatingAdmissionPolicyBinding", name] for name in POLICIES},
    gpu_class=shipped("manifests/deviceclasses.yaml")["DeviceClass", DRIVER],
    leader=Lease("lanewise-controller", "controller-1", NOW - timedelta(seconds=3)),
    plugin_leases=(Lease(INSTANCE.lease, "node-a", NOW - timedelta(seconds=9)),),
    foreign=(),
    node_object=a_node(),
    inventory=inventory(),
    granted={**dict.fromkeys(NEEDED, True), **dict.fromkeys(FORBIDDEN, False)},
)


def test_a_cluster_that_is_well():
    """As `kubectl apply -k deploy` leaves it."""
    assert lines(installation.judge(WELL, NOW)) == [
        "ok api server: Kubernetes v1.37.2",
        "ok api server: resource.k8s.io/v1 is served",
        "ok feature gates: on: DRADeviceTaints, DRAExtendedResource",
        "ok crd: NodeInventory is defined",
        f"ok class: DeviceClass {DRIVER} selects devices of the driver",
        "ok policies: all 3 are there, bound, and speak of our accounts",
        "ok rights: lanewise-node has all it needs",
        "ok rights: lanewise-controller has all it needs",
        "ok controller: controller-1 leads",
        "ok node: node-a is ready",
        "ok inventory: Published is True: 2 devices in 1 slice",
        "ok inventory: Registered is True: yes",
        "ok plugin: instance i1 renews its Lease",
        "ok other drivers: nobody else serves this node's GPUs",
    ]


UNASKED = Unknown("GET /x: 403 Forbidden", "grant it")
SICK = a_machine(0, gpus=(a_gpu(ailments=(known(LOST, OFF_THE_BUS, "2026-12-01T11:00:00Z"),)),))
EXTRA = "failure policies: lanewise-slices: "


def changed_policy(change):
    """WELL with the policy for slices changed."""
    policy = yaml.safe_load(change(yaml.safe_dump(WELL.policies["lanewise-slices"])))
    return replace(WELL, policies={**WELL.policies, "lanewise-slices": policy})


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (replace(WELL, version="v1.33.0"), ["failure api server: Kubernetes v1.33.0 is too old"]),
        (
            replace(WELL, version="v1.35.1"),
            ["warning api server: Kubernetes v1.35.1 has no device taints by default"],
        ),
        (replace(WELL, version="odd"), ["warning api server: its version 'odd' is not understood"]),
        (replace(WELL, serves_dra=False), ["failure api server: resource.k8s.io/v1 is not served"]),
        (replace(WELL, serves_dra=UNASKED), ["warning api server: GET /x: 403 Forbidden"]),
        (
            replace(WELL, gates={"DRADeviceTaints": False}),
            [
                (
                    "warning feature gates: DRADeviceTaints is off: devices of a dead plugin or an ailing GPU are not tainted, "
                    "and pods are sent to them"
                )
            ],
        ),
        (replace(WELL, gates={}), ["warning feature gates: the API server's metrics name none of ours"]),
        (replace(WELL, gates=UNASKED), ["warning feature gates: not known: GET /x: 403 Forbidden"]),
        (
            replace(WELL, crd=None),
            ["failure crd: NodeInventory is not defined: plugins cannot report what they find"],
        ),
        (
            replace(WELL, crd=with_condition({}, Established=("False", "x", "name taken"))),
            ["failure crd: NodeInventory is not served: name taken"],
        ),
        (replace(WELL, crd=UNASKED), ["warning crd: GET /x: 403 Forbidden"]),
        (
            replace(WELL, gpu_class=None),
            [f"failure class: there is no DeviceClass {DRIVER}: claims that name it wait for ever"],
        ),
        (
            replace(WELL, gpu_class={"spec": {}}),
            [
                f"failure class: DeviceClass {DRIVER} has no selector that names the driver: it gives any driver's devices"
            ],
        ),
        (
            replace(WELL, policies={**WELL.policies, "lanewise-slices": None}),
            [
                (
                    "failure policies: there is no ValidatingAdmissionPolicy lanewise-slices: "
                    "a node could write what is not its own"
                )
            ],
        ),
        (
            replace(WELL, bindings={**WELL.bindings, "lanewise-slices": None}),
            [
                (
                    "failure policies: there is no ValidatingAdmissionPolicyBinding lanewise-slices: "
                    "a node could write what is not its own"
                )
            ],
        ),
        (
            replace(WELL, bindings={**WELL.bindings, "lanewise-slices": {"spec": {"validationActions": ["Audit"]}}}),
            [f"{EXTRA}its binding does not deny"],
        ),
        (
            replace(WELL, policies=dict.fromkeys(POLICIES, UNASKED)),
            ["warning policies: GET /x: 403 Forbidden"] * 3,
        ),
        (
            replace(WELL, granted={**WELL.granted, NEEDED[1]: False, NEEDED[2]: False}),
            [
                (
                    "failure rights: lanewise-node may not create nodeinventories.lanewise.dev, "
                    "patch nodeinventories.lanewise.dev"
                )
            ],
        ),
        (
            replace(WELL, granted={**WELL.granted, FORBIDDEN[0]: True}),
            [
                (
                    "warning rights: lanewise-node may create resourceslices.resource.k8s.io: "
                    "any node could invent devices for any other"
                )
            ],
        ),
        (replace(WELL, granted=UNASKED), ["warning rights: not known: GET /x: 403 Forbidden"]),
        (
            replace(WELL, leader=None),
            ["warning controller: no controller has ever led here, or it runs with --leader-election=false"],
        ),
        (
            replace(WELL, leader=Lease("x", "c", NOW - timedelta(seconds=31))),
            [
                (
                    "failure controller: no controller leads since 2026-12-01T11:59:29+00:00: "
                    "nothing is published or tainted anew"
                )
            ],
        ),
        (
            replace(WELL, leader=Lease("x", "", None)),
            ["failure controller: no controller leads: nothing is published or tainted anew"],
        ),
        (replace(WELL, leader=UNASKED), ["warning controller: not known: GET /x: 403 Forbidden"]),
        (replace(WELL, node_object=None), ["failure node: there is no Node node-a"]),
        (
            replace(WELL, node_object=with_condition({}, Ready=("False", "x", "no network"))),
            ["failure node: node-a is not ready: no network"],
        ),
        (replace(WELL, inventory=None), ["failure inventory: no plugin has reported node-a"]),
        (replace(WELL, inventory=UNASKED), ["warning inventory: GET /x: 403 Forbidden"]),
        (
            replace(WELL, inventory=inventory(published=("False", "NoDevices", "no GPU"))),
            ["failure inventory: Published is False (NoDevices): no GPU"],
        ),
        (
            replace(WELL, inventory=an_inventory(instances=(INSTANCE,))),
            ["failure inventory: Published is not said", "failure inventory: Registered is not said"],
        ),
        (
            replace(WELL, inventory=inventory(SICK)),
            ["warning health: 0000:65:00.0: the GPU has fallen off the bus, since 2026-12-01T11:00:00Z"],
        ),
        (replace(WELL, plugin_leases=()), ["failure plugin: plugin instance i1 is silent"]),
        (
            replace(WELL, plugin_leases=(Lease(INSTANCE.lease, "node-a", NOW - timedelta(seconds=41)),)),
            ["failure plugin: plugin instance i1 is silent"],
        ),
        (
            replace(WELL, node_object=a_node(**{"nvidia.com/gpu": "8"})),
            [
                (
                    "failure other drivers: the node offers 8 nvidia.com/gpu through a device plugin; "
                    "take the plugin off this node"
                )
            ],
        ),
        (
            replace(WELL, foreign=(ForeignSlice("s", "gpu.nvidia.com", "node-a", 8),)),
            ["failure other drivers: driver gpu.nvidia.com publishes GPUs of this node; take it off this node"],
        ),
        (replace(WELL, foreign=UNASKED), ["warning other drivers: not known: GET /x: 403 Forbidden"]),
    ],
)
def test_each_thing_that_can_be_wrong(seen, said):
    """Nothing else is said beside it."""
    assert trouble(installation.judge(seen, NOW)) == said


def test_a_policy_for_another_account_is_found():
    """Case K1: installed in one namespace, and speaking of an account in another, it guards nothing."""
    seen = changed_policy(lambda text: text.replace("lanewise-controller", "someone-else"))
    assert trouble(installation.judge(seen, NOW)) == [
        f"{EXTRA}it speaks of the account someone-else in lanewise-system, and Lanewise is in lanewise-system"
    ]
    elsewhere = trouble(installation.judge(replace(WELL, namespace="gpus"), NOW))
    assert [line.split(":")[0] for line in elsewhere] == ["failure policies"] * 3


def test_a_policy_that_speaks_of_nobody_is_found():
    """The same case, without any name."""
    seen = changed_policy(lambda text: text.replace("system:serviceaccount", "system:sa"))
    assert trouble(installation.judge(seen, NOW)) == [f"{EXTRA}it speaks of no account"]


def test_a_policy_for_one_api_version_is_found():
    """Case K2: unless the API server converts for it, a write through another version goes past it."""
    seen = changed_policy(lambda text: text.replace("'*'", "v1"))
    assert trouble(installation.judge(seen, NOW)) == []
    exact = changed_policy(
        lambda text: text.replace("'*'", "v1").replace("matchConstraints:", "matchConstraints:\n    matchPolicy: Exact")
    )
    assert trouble(installation.judge(exact, NOW)) == [f"{EXTRA}it covers only the versions v1"]


def test_without_a_node_only_the_cluster_is_looked_at():
    """From anywhere."""
    checks = {line.split(":")[0] for line in lines(installation.judge(replace(WELL, node=None), NOW))}
    assert not checks & {"ok node", "ok inventory", "ok plugin"}


def test_the_rights_asked_for_are_those_of_the_manifests():
    """No more, no fewer, and in the same namespace."""
    rbac = list(yaml.safe_load_all((DEPLOY / "manifests/rbac.yaml").read_text()))
    shipped_rights = {
        (user, group, name, verb, grant.namespace is None)
        for user, grants in granted(rbac).items()
        for grant in grants
        for group in grant.groups
        for name in grant.resources
        for verb in grant.verbs
    }
    asked = {
        (account(NAMESPACE, right.account), right.group, right.resource, right.verb, right.everywhere)
        for right in NEEDED
    }
    assert asked == shipped_rights
    assert not {(account(NAMESPACE, PLUGIN_ACCOUNT), r.group, r.resource, r.verb, True) for r in FORBIDDEN} & asked


def test_a_review_asks_for_the_subresource_by_itself():
    """As the API has it: not with a slash, and in a namespace only where the right is of one."""
    (status,) = [right for right in NEEDED if right.resource.endswith("/status") and right.account == PLUGIN_ACCOUNT]
    spec = status.review("ns")["spec"]
    assert spec["user"] == "system:serviceaccount:ns:lanewise-node"
    assert spec["resourceAttributes"] == {
        "verb": "patch",
        "group": "lanewise.dev",
        "resource": "nodeinventories",
        "subresource": "status",
    }
    lease = next(right for right in NEEDED if right.resource == "leases")
    assert lease.review("ns")["spec"]["resourceAttributes"]["namespace"] == "ns"
