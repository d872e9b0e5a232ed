"""Every machine of examples/machines is found, reported, and published on the real API server, whatever the order."""

import tempfile
from pathlib import Path

import pytest
import yaml

from cli.sandbox.kubelet import Registry
from tests.cluster.lanewise import DRIVER, NAMESPACE, until
from tests.support.machines import ALL

SLICES = "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName%3D"


@pytest.fixture
def node(site, request):
    """A Node without a kubelet: ours stands in, with a registry directory of its own."""
    name = f"machine-{request.node.callspec.params['machine'].stem}"
    manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    site.cluster.apply(yaml.safe_dump(manifest))
    with tempfile.TemporaryDirectory(prefix="lw-") as folder:
        (Path(folder) / "registry").mkdir()
        yield name, Path(folder)
    site.cluster.kubectl("delete", "node", name, "--ignore-not-found")


@pytest.mark.parametrize("machine", ALL, ids=lambda path: path.stem)
def test_machine_is_published_and_accepted(site, node, machine):
    """As many devices as the file has GPUs without MIG; the same names and no write when the file's order is reversed."""
    name, folder = node
    described = yaml.load(machine.read_text(), yaml.BaseLoader)  # else YAML takes some PCI addresses for numbers
    copy = folder / "machine.yaml"
    copy.write_text(machine.read_text())
    token = site.cluster.bound_token(NAMESPACE, "lanewise-node", node=name)
    flags = (
        f"--kubeconfig={site.cluster.kubeconfig_for(token)}",
        f"--node-name={name}",
        f"--plugin-dir={folder}/plugin",
        f"--registry-dir={folder}/registry",
        f"--cdi-dir={folder}/cdi",
        "--rediscover-seconds=1",
    )
    plugin = site.lanewise.start_plugin(*flags, name=name, machine=copy)
    kubelet = Registry(folder / "registry", health_versions=("v1",))

    def slices() -> list[dict]:
        return site.cluster.get(f"{SLICES}{name}")["items"]

    def devices() -> dict[str, dict]:
        return {each["name"]: each for one in slices() for each in one["spec"].get("devices", [])}

    try:
        until("the plugin's socket is there", (folder / f"registry/{DRIVER}-reg.sock").exists)
        kubelet.scan()
        until("the GPUs are published", lambda: len(devices()) == len(described["gpus"]))
        before = [(each["metadata"]["uid"], each["metadata"]["resourceVersion"]) for each in slices()]
        assert all(device["attributes"]["uuid"]["string"].startswith("GPU-") for device in devices().values())
        reversed_file = {**described, "gpus": described["gpus"][::-1], "nics": described.get("nics", [])[::-1]}
        copy.write_text(yaml.safe_dump(reversed_file))
        # A change that is seen for certain: one that comes after it proves that the reversal was looked at.
        copy.write_text(yaml.safe_dump({**reversed_file, "driver": {"version": "999.1.1", "cuda": "13.0"}}))

        def driver_version() -> str:
            found = site.cluster.get(f"/apis/lanewise.dev/v1alpha1/nodeinventories/{name}")
            return found["spec"]["driver"]["version"]

        until("the new inventory is there", lambda: driver_version() == "999.1.1")
        until(
            "the slice follows",
            lambda: {d["attributes"]["driverVersion"]["version"] for d in devices().values()} == {"999.1.1"},
        )
        assert [each["metadata"]["uid"] for each in slices()] == [uid for uid, _ in before]
    finally:
        kubelet.close()
        plugin.stop()
    until(
        "its Lease went with it",
        lambda: name not in site.cluster.kubectl("get", "leases", "-n", NAMESPACE, "-o", "yaml"),
    )
