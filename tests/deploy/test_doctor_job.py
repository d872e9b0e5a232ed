"""deploy/doctor-job.yaml sees what the plugin sees, and may ask what the doctor asks."""

import re
from pathlib import Path

import pytest
import yaml

from cli.main import parser

DEPLOY = Path(__file__).parents[2] / "deploy"
OBJECTS = {
    (obj["kind"], obj["metadata"]["name"]): obj for obj in yaml.safe_load_all((DEPLOY / "doctor-job.yaml").read_text())
}
(PLUGIN,) = yaml.safe_load_all((DEPLOY / "manifests/kubeletplugin.yaml").read_text())
JOB = OBJECTS["Job", "lanewise-doctor"]["spec"]["template"]["spec"]
NEEDED = {
    "node_object": ("", "nodes", "get"),
    "inventory": ("lanewise.dev", "nodeinventories", "get"),
    "foreign": ("resource.k8s.io", "resourceslices", "list"),
    "gpu_class": ("resource.k8s.io", "deviceclasses", "get"),
    "crd": ("apiextensions.k8s.io", "customresourcedefinitions", "get"),
    "policies": ("admissionregistration.k8s.io", "validatingadmissionpolicies", "get"),
    "bindings": ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", "get"),
    "granted": ("authorization.k8s.io", "subjectaccessreviews", "create"),
    "leader": ("coordination.k8s.io", "leases", "get"),
    "plugin_leases": ("coordination.k8s.io", "leases", "list"),
}


def test_it_mounts_what_the_plugin_mounts():
    """At the same places: paths mean the same to both."""
    pod = PLUGIN["spec"]["template"]["spec"]
    assert JOB["containers"][0]["volumeMounts"] == pod["containers"][0]["volumeMounts"]
    assert [(each["name"], each["hostPath"]["path"]) for each in JOB["volumes"]] == [
        (each["name"], each["hostPath"]["path"]) for each in pod["volumes"]
    ]
    assert JOB["containers"][0]["securityContext"] == pod["containers"][0]["securityContext"]
    assert JOB["hostNetwork"] is pod["hostNetwork"]


def test_its_command_line_is_one():
    """The flags exist, and the host's root is where it is mounted."""
    program, *arguments = JOB["containers"][0]["command"]
    assert program == "lanewise"
    chosen = parser().parse_args(arguments)
    assert str(chosen.host_root) in [each["mountPath"] for each in JOB["containers"][0]["volumeMounts"]]


def test_its_image_is_that_of_the_kustomization():
    """The Job is applied by itself, without kustomize."""
    (image,) = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["images"]
    assert JOB["containers"][0]["image"] == f"{image['newName']}:{image['newTag']}"


def test_it_is_not_applied_with_the_rest():
    """Nobody's node is named NODE."""
    assert "doctor-job.yaml" not in (DEPLOY / "kustomization.yaml").read_text()
    assert JOB["nodeName"] == "NODE"


def test_its_rights_are_those_that_it_uses():
    """Each of them for one thing that it asks; reading, and asking who may what."""
    granted = {
        (group, name, verb)
        for (kind, _), obj in OBJECTS.items()
        if kind in ("Role", "ClusterRole")
        for rule in obj["rules"]
        if "resources" in rule
        for group in rule["apiGroups"]
        for name in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == set(NEEDED.values())


@pytest.mark.parametrize("field", NEEDED)
def test_what_it_asks_is_still_asked(field):
    """A right for something that is not asked any more goes."""
    source = (DEPLOY.parent / "cli/doctor/cluster.py").read_text()
    assert re.search(rf"^        {field}=", source, re.MULTILINE)
