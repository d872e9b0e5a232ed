"""How the programs of deploy/ start without a cluster."""

import pytest

from cli.sandbox.workloads import PodFacts, start_of
from cli.shipped import documents, shipped
from controller import settings as controller_settings
from kubeletplugin import settings as plugin_settings

POD = PodFacts("pod-0", "lanewise-system", "0b52d13a-2a84-4d0e-9a6d-5f2f6c1f6f0d", "node-a")


def workload(name: str) -> dict:
    (found,) = documents(shipped(f"deploy/manifests/{name}.yaml"))
    return found


def test_the_controller_starts_with_its_manifests_settings() -> None:
    """On a port that is free here."""
    start = start_of(workload("controller"), POD)
    settings = controller_settings.parse(start.arguments, start.environment)
    assert (start.module, start.account) == ("controller.main", "lanewise-controller")
    assert (settings.namespace, settings.identity, settings.leader_election) == ("lanewise-system", "pod-0", True)
    assert settings.http_port not in (0, 8081)


def test_the_plugin_starts_with_its_manifests_settings() -> None:
    """As its pod would tell it through the downward API."""
    start = start_of(workload("kubeletplugin"), POD, ["--driver-root=/x"])
    settings = plugin_settings.parse(start.arguments, start.environment)
    assert (start.module, start.account) == ("kubeletplugin.main", "lanewise-node")
    assert (settings.node, settings.pod_uid, settings.namespace) == (POD.node, POD.uid, POD.namespace)
    assert str(settings.driver_root) == "/x"
    assert [flag for flag in start.arguments if flag.startswith("--driver-root")] == ["--driver-root=/x"]


def test_a_field_that_only_a_cluster_knows_is_not_made_up() -> None:
    """ValueError names it."""
    manifest = workload("controller")
    entry = {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    manifest["spec"]["template"]["spec"]["containers"][0]["env"].append(entry)
    with pytest.raises(ValueError, match=r"status\.podIP"):
        start_of(manifest, POD)
