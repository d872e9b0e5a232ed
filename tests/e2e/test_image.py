"""Both parts as pods, from an image and the manifests of deploy/: installed, used, updated, uninstalled."""

import json
from pathlib import Path

import pytest

from tests.cluster.cluster import KubectlError
from tests.cluster.lanewise import DRIVER, NAMESPACE, until
from tests.cluster.lanewise_image import build
from tests.e2e.site import claim, pod, template

OVERLAY = Path(__file__).parent / "overlay"
WAIT = "--timeout=120s"


@pytest.fixture
def pods(site, tmp_path):
    """The cluster with Lanewise in pods instead of processes; afterwards as it was."""
    site.cluster.import_image(build(tmp_path / "image"))
    site.plugin.stop()
    site.controller.stop()
    machine = site.cluster.plugins_dir / "machine.yaml"
    machine.write_bytes(site.lanewise.machine.read_bytes())
    site.cluster.kubectl("label", "node", "localhost", "lanewise.dev/gpu=true")
    yield site
    site.clean()
    site.cluster.kubectl("label", "node", "localhost", "lanewise.dev/gpu-")
    for workload in ("daemonset/lanewise-kubeletplugin", "deployment/lanewise-controller"):
        site.cluster.kubectl("-n", NAMESPACE, "delete", workload, "--ignore-not-found", WAIT)
    machine.unlink()
    site.lanewise.install()


def rolled_out(site) -> None:
    """Wait until both workloads run as their manifests say."""
    for workload in ("daemonset/lanewise-kubeletplugin", "deployment/lanewise-controller"):
        site.cluster.kubectl("-n", NAMESPACE, "rollout", "status", workload, WAIT)


def test_life_of_an_installation(pods):
    """Install, serve a pod, update under it, and uninstall in the documented order: no pod hangs in Terminating."""
    cluster = pods.cluster
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(OVERLAY))
    rolled_out(pods)
    pods.published(60)
    pods.apply(claim("held"), pod("held", claims=["held"]), template("each"))
    pods.running("held")
    first = pods.seen("held")
    assert (len(first.uuids), len(first.nodes)) == (1, 1)

    # An update: another pod template, as a new image makes it.
    patch = {"spec": {"template": {"metadata": {"annotations": {"updated": "yes"}}}}}
    cluster.kubectl("-n", NAMESPACE, "patch", "daemonset", "lanewise-kubeletplugin", "-p", json.dumps(patch))
    rolled_out(pods)
    until("one plugin is left", lambda: len(pods.inventory()["status"]["instances"]) == 1, 60)
    pods.published()
    during = pod("during", templates=["each"])
    pods.apply(during)
    pods.running("during")
    assert pods.seen("held") == first

    # Uninstalling, as docs/installation.md says.
    manifests = Path(__file__).parents[2] / "deploy/manifests"
    cluster.kubectl("delete", "-f", str(manifests / "deviceclasses.yaml"))
    cluster.kubectl("delete", "-f", str(manifests / "deviceclass-extended-resource.yaml"))
    pods.clean()
    cluster.kubectl("-n", NAMESPACE, "delete", "daemonset", "lanewise-kubeletplugin", WAIT)
    cluster.kubectl("delete", "nodeinventories", "--all", WAIT)
    until("the controller took the slices away", lambda: not pods.slices())
    cluster.kubectl("-n", NAMESPACE, "delete", "deployment", "lanewise-controller", WAIT)
    cluster.kubectl("delete", "-k", str(OVERLAY), "--ignore-not-found", WAIT)
    with pytest.raises(KubectlError, match="not found"):
        cluster.kubectl("get", "namespace", NAMESPACE)
    until("the last plugin pod took its sockets away", lambda: not list(cluster.plugins_registry.glob(f"{DRIVER}*")))
