"""Which nodes take a pod, devices aside."""

import pytest

from cli.sandbox import fits
from tests.support.allocation import a_node


def a_pod(**spec):
    return {"metadata": {"name": "pod", "namespace": "team-a"}, "spec": {"containers": [], **spec}}


def a_container(restart=None, **requests):
    container = {"name": "c", "resources": {"requests": requests}}
    return container | ({"restartPolicy": restart} if restart else {})


def tainted(**taint):
    return {**a_node(), "spec": {"taints": [{"key": "k", "effect": "NoSchedule", **taint}]}}


@pytest.mark.parametrize(
    ("toleration", "taken"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "value": "w"}, False),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"value": "v"}, False),
    ],
)
def test_taints_of_nodes_want_tolerations(toleration, taken):
    """By key, value and effect; a toleration without key has to be Exists."""
    why = fits.why_not(a_pod(tolerations=[toleration]), tainted(value="v"), (), ())
    assert why == ("" if taken else "untolerated taint {k: v}")


def test_prefer_no_schedule_forbids_nothing():
    """Only NoSchedule and NoExecute keep a pod away."""
    assert fits.why_not(a_pod(), tainted(effect="PreferNoSchedule"), (), ()) == ""


def test_labels_have_to_match():
    """nodeSelector and required node affinity both count."""
    east = a_node(zone="east")
    assert fits.why_not(a_pod(nodeSelector={"zone": "east"}), east, (), ()) == ""
    term = {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["east"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    for spec in ({"nodeSelector": {"zone": "west"}}, {"affinity": {"nodeAffinity": required}}):
        assert "node selector does not match" in fits.why_not(a_pod(**spec), east, (), ())


def test_what_other_pods_have_is_not_given_again():
    """Requests of the pods on the node count against its allocatable; what a node does not tell of is not counted."""
    node = {**a_node(), "status": {"allocatable": {"cpu": "2", "pods": "2"}}}
    pod = a_pod(containers=[a_container(cpu="1500m", memory="1Ti")])
    assert fits.why_not(pod, node, (), ()) == ""
    assert fits.why_not(pod, node, (pod,), ()) == "insufficient cpu"
    assert fits.why_not(a_pod(), node, (a_pod(), a_pod()), ()) == "too many pods"
    assert fits.why_not(a_pod(containers=[a_container(**{"x/y": "1"})]), node, (), ()) == "insufficient x/y"
    assert fits.why_not(a_pod(containers=[a_container(**{"x/y": "1"})]), node, (), ("x/y",)) == ""


def test_init_containers_count_by_the_largest():
    """What ends before the rest starts adds nothing unless it is more; a sidecar adds to all that follows."""
    inits = [a_container(cpu="1", restart="Always"), a_container(cpu="4")]
    assert fits.requests(a_pod(containers=[a_container(cpu="2")], initContainers=inits))["cpu"] == 5
    assert fits.requests(a_pod(containers=[a_container(cpu="2")], initContainers=inits[:1]))["cpu"] == 3


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}, "spec.topologySpreadConstraints"),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, ""),
        (
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]},
            "spec.volumes with a persistentVolumeClaim",
        ),
        ({"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}, "hostPort"),
    ],
)
def test_what_would_have_to_be_ignored_is_named(spec, field):
    """Fields that a scheduler has to heed and this one does not understand."""
    assert fits.not_understood(a_pod(**spec)) == field
