"""The manifests of deploy/ fit each other, the programs, and what Kubernetes makes of them."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from api.inventory import KIND
from api.kube.paths import LEASES, NODE_INVENTORIES, SLICES
from api.names import API_GROUP, API_VERSION, GPU_DRIVER, NAMESPACE
from api.version import VERSION
from controller import settings as controller_settings
from kubeletplugin import settings as plugin_settings
from kubeletplugin.sockets.paths import PLUGINS_DIR, REGISTRY_DIR

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUSTOMIZATION = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
EFFECTS = {"NoSchedule", "NoExecute", "PreferNoSchedule"}


def rendered():
    """Every object that kubectl apply -k would make. Our kustomization changes nothing but the image."""
    return [obj for path in KUSTOMIZATION["resources"] for obj in yaml.safe_load_all((DEPLOY / path).read_text())]


OBJECTS = rendered()


def of_kind(kind):
    return [obj for obj in OBJECTS if obj["kind"] == kind]


def named(kind, name):
    (found,) = [obj for obj in of_kind(kind) if obj["metadata"]["name"] == name]
    return found


(PLUGIN,) = of_kind("DaemonSet")
(CONTROLLER,) = of_kind("Deployment")
WORKLOADS = [
    pytest.param(PLUGIN, plugin_settings, id="kubeletplugin"),
    pytest.param(CONTROLLER, controller_settings, id="controller"),
]
POLICIES = of_kind("ValidatingAdmissionPolicy")


def container(workload):
    (only,) = workload["spec"]["template"]["spec"]["containers"]
    return only


def account(workload):
    """The user name that the API server gives a workload's pods."""
    meta, pod = workload["metadata"], workload["spec"]["template"]["spec"]
    return f"system:serviceaccount:{meta['namespace']}:{pod['serviceAccountName']}"


def strings(value):
    """All texts in a manifest."""
    if isinstance(value, dict):
        return [text for item in value.values() for text in strings(item)]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


# The set of files.


def test_every_manifest_is_listed_once():
    """A file that kustomize does not name is not installed, and nobody notices."""
    there = sorted(
        str(path.relative_to(DEPLOY)) for folder in ("crds", "manifests") for path in (DEPLOY / folder).iterdir()
    )
    assert sorted(KUSTOMIZATION["resources"]) == there


def test_no_object_is_there_twice():
    """The second would silently replace the first."""
    ids = [(obj["apiVersion"], obj["kind"], obj["metadata"]["name"]) for obj in OBJECTS if obj["kind"] != "Role"]
    assert len(ids) == len(set(ids))


def test_everything_is_in_our_namespace_and_it_comes_first():
    """kubectl applies in this order within a kind; a namespaced object without a namespace lands in `default`."""
    namespaced = {"ServiceAccount", "Role", "RoleBinding", "Deployment", "DaemonSet"}
    assert {obj["metadata"].get("namespace") for obj in OBJECTS if obj["kind"] in namespaced} == {NAMESPACE}
    kinds = [obj["kind"] for obj in OBJECTS]
    assert [obj["metadata"]["name"] for obj in of_kind("Namespace")] == [NAMESPACE]
    assert kinds.index("Namespace") < min(kinds.index(kind) for kind in namespaced)


def test_one_version_everywhere():
    """The package, the programs and the image's tag."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (image,) = KUSTOMIZATION["images"]
    assert project["version"] == VERSION == image["newTag"]


@pytest.mark.parametrize(("workload", "settings"), WORKLOADS)
def test_the_image_is_the_one_that_kustomize_replaces(workload, settings):
    """Under another name it would be pulled from where nobody put it."""
    (image,) = KUSTOMIZATION["images"]
    assert container(workload)["image"] == image["name"]


# What the programs are told.


@pytest.mark.parametrize(("workload", "settings"), WORKLOADS)
def test_flags_and_variables_are_known_to_the_program(workload, settings):
    """Each flag exists, each variable is one that the program reads, and together they are accepted."""
    flags = {row[0]: row[1] for row in settings._FLAGS}
    arguments = container(workload).get("args", [])
    assert {argument.partition("=")[0] for argument in arguments} <= flags.keys()
    variables = {entry["name"] for entry in container(workload)["env"]}
    assert variables <= set(flags.values())
    told = settings.parse(arguments, dict.fromkeys(variables, "node-a"))
    assert told.namespace == "node-a"
    assert told.driver == GPU_DRIVER


def test_the_program_is_one_that_the_image_has():
    """Console scripts of the distribution, installed by deploy/image/install."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    install = (DEPLOY / "image/install").read_text()
    for workload in (PLUGIN, CONTROLLER):
        (command,) = container(workload)["command"]
        assert command in scripts
        assert f"{command}:{scripts[command].partition('.')[0]}" in install


def test_the_plugins_directories_are_mounted_under_their_own_names():
    """The kubelet dials, and the runtime reads, the very paths that the plugin names."""
    settings = plugin_settings.parse(container(PLUGIN)["args"], {"NODE_NAME": "node-a", "POD_UID": "uid-1"})
    volumes = {item["name"]: item["hostPath"]["path"] for item in PLUGIN["spec"]["template"]["spec"]["volumes"]}
    mounts = {item["mountPath"]: item for item in container(PLUGIN)["volumeMounts"]}
    assert {item["name"] for item in mounts.values()} == volumes.keys()
    for path in (settings.plugin_dir, settings.registry_dir, settings.cdi_dir):
        (mount,) = [at for at in mounts if path == Path(at) or Path(at) in path.parents]
        assert volumes[mounts[mount]["name"]] == mount
        assert not mounts[mount].get("readOnly")
    assert settings.registry_dir == REGISTRY_DIR
    assert settings.plugin_dir == PLUGINS_DIR / GPU_DRIVER


def test_the_hosts_root_is_seen_where_the_flags_say():
    """Driver files and device nodes: read through /host, named to the runtime as the host has them."""
    settings = plugin_settings.parse(container(PLUGIN)["args"], {"NODE_NAME": "node-a"})
    (host,) = [item for item in container(PLUGIN)["volumeMounts"] if item["mountPath"] == str(settings.driver_root)]
    (volume,) = [item for item in PLUGIN["spec"]["template"]["spec"]["volumes"] if item["name"] == host["name"]]
    assert host["readOnly"]
    assert host["mountPropagation"] == "HostToContainer"  # a driver container mounts its root after we start
    assert settings.dev_root == settings.driver_root
    assert str(settings.host_driver_root) == str(settings.host_dev_root) == volume["hostPath"]["path"]


def test_records_are_on_a_disk_that_survives():
    """Case G13: /var/lib, not /run or a tmpfs, and a directory of the host, not of the pod."""
    settings = plugin_settings.parse(container(PLUGIN)["args"], {"NODE_NAME": "node-a"})
    assert settings.plugin_dir.is_relative_to("/var/lib/kubelet")
    assert not [volume for volume in PLUGIN["spec"]["template"]["spec"]["volumes"] if "hostPath" not in volume]


# How the pods run.


def test_the_plugin_is_updated_without_a_gap():
    """The new pod serves before the old one goes."""
    assert PLUGIN["spec"]["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    }


def test_no_port_is_claimed_twice_during_an_update():
    """Two plugin pods share the host's network; a declared port becomes a host port there (SetDefaults_PodSpec of Kubernetes),
    and would keep the second from being scheduled."""
    pod = PLUGIN["spec"]["template"]["spec"]
    assert pod["hostNetwork"]
    assert "ports" not in container(PLUGIN)
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert "exec" in container(PLUGIN)[probe], (
            "the one of them that has not got the port yet must not be killed for it"
        )


@pytest.mark.parametrize(("workload", "settings"), WORKLOADS)
def test_metrics_are_found_where_they_are_shown(workload, settings):
    """By the annotations that many Prometheus configurations go by."""
    told = settings.parse(container(workload)["args"], {"NODE_NAME": "node-a"})
    annotations = workload["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(told.http_port),
        "prometheus.io/path": "/metrics",
    }
    assert told.http_port not in range(30000, 61000), "such ports are given to NodePorts and to whoever calls out"


def test_tolerations_of_gpu_taints_write_out_their_effect():
    """One without would tolerate whatever effect somebody gives a taint of that key later."""
    tolerations = PLUGIN["spec"]["template"]["spec"]["tolerations"]
    assert {item["effect"] for item in tolerations if item.get("key") == "nvidia.com/gpu"} == {
        "NoSchedule",
        "NoExecute",
    }
    assert all(item.get("key") for item in tolerations), "a toleration without a key tolerates everything"
    assert all(item.get("effect") in EFFECTS for item in tolerations)


def test_the_plugin_goes_where_gpus_are():
    """Either NFD's label or one's own."""
    affinity = PLUGIN["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert sorted(term["matchExpressions"][0]["key"] for term in terms) == [
        "feature.node.kubernetes.io/pci-10de.present",
        "lanewise.dev/gpu",
    ]


def test_probes_ask_where_the_controller_answers():
    """The port of the flag."""
    settings = controller_settings.parse(container(CONTROLLER)["args"], {})
    assert settings.http_port
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container(CONTROLLER)[probe]["httpGet"] == {"path": path, "port": settings.http_port}


def test_a_fatal_start_is_readable_in_the_pods_status():
    """The one sentence that a program says before it exits with 2."""
    for workload in (PLUGIN, CONTROLLER):
        assert container(workload)["terminationMessagePolicy"] == "FallbackToLogsOnError"


@pytest.mark.parametrize(("workload", "settings"), WORKLOADS)
def test_selectors_find_their_pods(workload, settings):
    """And nobody else's."""
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert (
        workload["spec"]["selector"]["matchLabels"]
        == labels
        == {"app.kubernetes.io/name": workload["metadata"]["name"]}
    )


# DeviceClasses.


@pytest.mark.parametrize("device_class", of_kind("DeviceClass"), ids=lambda obj: obj["metadata"]["name"])
def test_each_class_pins_driver_and_one_type(device_class):
    """So that `allocationMode: All` means what it says, and a later type does not slip in."""
    (selector,) = device_class["spec"]["selectors"]
    expression = selector["cel"]["expression"]
    assert expression.split(" && ") == [
        f"device.driver == '{GPU_DRIVER}'",
        f"device.attributes['{GPU_DRIVER}'].type == 'gpu'",
    ]


def test_one_class_offers_the_extended_resource():
    """Two would be ambiguous; the other stays plain."""
    names = [obj["spec"].get("extendedResourceName") for obj in of_kind("DeviceClass")]
    assert sorted(names, key=str) == [None, "nvidia.com/gpu"]


def test_kinds_are_in_the_versions_that_we_speak():
    """Case I9: classes, policies and code agree on resource.k8s.io/v1."""
    assert {obj["apiVersion"] for obj in of_kind("DeviceClass")} == {SLICES.api_version}
    (crd,) = of_kind("CustomResourceDefinition")
    assert crd["spec"]["names"]["kind"] == KIND
    assert [f"{API_GROUP}/{version['name']}" for version in crd["spec"]["versions"]] == [API_VERSION]


# Who may do what.


@pytest.mark.parametrize(
    ("policy", "workload"),
    [("lanewise-node-inventory", PLUGIN), ("lanewise-node-lease", PLUGIN), ("lanewise-slices", CONTROLLER)],
    ids=["inventory", "lease", "slices"],
)
def test_policies_name_the_accounts_that_the_pods_have(policy, workload):
    """Case K1: a policy that matches another account than the DaemonSet's stops nobody."""
    accounts = {
        found
        for text in strings(named("ValidatingAdmissionPolicy", policy))
        for found in re.findall(r"'(system:serviceaccount:[^']*)'", text)
    }
    assert accounts == {account(workload)}


@pytest.mark.parametrize("workload", [PLUGIN, CONTROLLER], ids=["kubeletplugin", "controller"])
def test_bindings_name_accounts_that_exist_and_are_used(workload):
    """Case K1, for RBAC: the pods' account is made, and both its bindings name it."""
    name = workload["spec"]["template"]["spec"]["serviceAccountName"]
    assert named("ServiceAccount", name)["metadata"]["namespace"] == NAMESPACE
    subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
    bindings = [
        obj for kind in ("ClusterRoleBinding", "RoleBinding") for obj in of_kind(kind) if subject in obj["subjects"]
    ]
    assert sorted(obj["kind"] for obj in bindings) == ["ClusterRoleBinding", "RoleBinding"]
    for binding in bindings:
        assert binding["subjects"] == [subject]
        assert named(binding["roleRef"]["kind"], binding["roleRef"]["name"])


@pytest.mark.parametrize("policy", POLICIES, ids=lambda obj: obj["metadata"]["name"])
def test_policies_cover_every_version(policy):
    """Case K2: who writes through v1beta1 meets the same rule as who writes through v1."""
    constraints = policy["spec"]["matchConstraints"]
    for rule in constraints["resourceRules"]:
        assert rule["apiVersions"] == ["*"]
        assert "scope" not in rule or rule["scope"] == "*"
    assert constraints.get("matchPolicy", "Equivalent") == "Equivalent"
    assert "namespaceSelector" not in constraints
    assert "objectSelector" not in constraints


@pytest.mark.parametrize("policy", POLICIES, ids=lambda obj: obj["metadata"]["name"])
def test_policies_are_bound_deny_and_fail_closed(policy):
    """A policy without a binding does nothing; one that warns stops nothing."""
    name = policy["metadata"]["name"]
    (binding,) = [obj for obj in of_kind("ValidatingAdmissionPolicyBinding") if obj["spec"]["policyName"] == name]
    assert binding["spec"]["validationActions"] == ["Deny"]
    assert "matchResources" not in binding["spec"]
    assert policy["spec"]["failurePolicy"] == "Fail"


def test_policies_guard_the_kinds_that_we_write():
    """Each with its status, where a node writes that."""
    guarded = {
        (rule["apiGroups"][0], resource): set(rule["operations"])
        for policy in POLICIES
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        for resource in rule["resources"]
    }
    every = {"CREATE", "UPDATE", "DELETE"}
    assert guarded == {
        (NODE_INVENTORIES.group, NODE_INVENTORIES.plural): every,
        (NODE_INVENTORIES.group, f"{NODE_INVENTORIES.plural}/status"): every,
        (LEASES.group, LEASES.plural): every,
        (SLICES.group, SLICES.plural): {"CREATE", "UPDATE"},
    }


def test_policies_name_our_driver():
    """The one that the programs have when nobody says otherwise."""
    text = "\n".join(strings(named("ValidatingAdmissionPolicy", "lanewise-slices")))
    assert f"object.spec.driver == '{GPU_DRIVER}'" in text


def test_no_role_has_wildcards():
    """Neither verbs nor resources nor groups."""
    for kind in ("ClusterRole", "Role"):
        for role in of_kind(kind):
            assert "*" not in strings(role["rules"]), role["metadata"]["name"]


def test_the_helps_name_every_flag(capsys):
    """Docs point there for all settings."""
    for settings in (plugin_settings, controller_settings):
        with pytest.raises(SystemExit) as stopped:
            settings.parse(["--help"], {})
        assert stopped.value.code == 0
        text = capsys.readouterr().out
        assert all(row[0] in text and f"${row[1]}" in text for row in settings._FLAGS)
