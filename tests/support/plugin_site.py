"""A node for tests of the whole plugin: its directories, its API server, the kubelet's stand-in, and what can be seen there."""

import threading
import time
from dataclasses import replace
from pathlib import Path

from api.inventory import decode
from kubeletplugin.plugin import Plugin
from kubeletplugin.settings import Settings, parse
from tests.support.controlled_cluster import NAMESPACE, SECONDS
from tests.support.machines import TWO_GPUS

DRIVER = "gpu.lanewise.dev"
NODE = "node-a"
POOL = f"{NODE}/{DRIVER}"
FIRST, SECOND = "gpu-53-00-0", "gpu-64-00-0"
OLD, NEW = "0b6d2f5e-1111-4a3c-9a55-3c1b6a8e7d11", "7c1e9a04-2222-4a3c-9a55-3c1b6a8e7d11"


def until(holds, seconds=SECONDS):
    """Wait for what no lock or queue tells of."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come to pass"
        threading.Event().wait(0.02)


class Site:
    """A node's directories, its API server, and the plugins and the kubelet on it."""

    def __init__(self, base: Path, town, client, kubelet):
        self.base, self.town, self.client, self.kubelet = base, town, client, kubelet
        (base / "reg").mkdir()
        self.machine = base / "machine.yaml"
        self.machine.write_text(TWO_GPUS)
        self.owner = town.node(NODE)
        town.api.store.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})
        self.started: list[Plugin] = []

    def settings(self, **changes) -> Settings:
        base = self.base
        flags = {
            "node-name": NODE,
            "plugin-dir": base / "plug",
            "registry-dir": base / "reg",
            "cdi-dir": base / "cdi",
            "machine": self.machine,
            "machine-nodes": "plain",  # no test needs CAP_MKNOD
        }
        settings = parse([f"--{flag}={value}" for flag, value in flags.items()], {})
        return replace(settings, rediscover_seconds=3600, reconcile_seconds=3600, **changes)

    def plugin(self, *, pod_uid=None, **changes) -> Plugin:
        """Started; stopped at the end of the test."""
        plugin = Plugin(self.settings(pod_uid=pod_uid, **changes), self.client, version="0.1.0")
        plugin.start()
        self.started.append(plugin)
        return plugin

    def ready(self, **options) -> Plugin:
        """Started, its machine known and reported, registered with the kubelet."""
        plugin = self.plugin(**options)
        self.kubelet.scan()
        until(lambda: plugin.why_not_ready() is None)
        self.town.wait(lambda: any(self.entries().values()))
        return plugin

    def stop(self, plugin) -> None:
        """As on SIGTERM."""
        self.started.remove(plugin)
        plugin.stop()

    def kill(self, plugin) -> None:
        """As near to SIGKILL as one process gets: the sockets stay where they are, answered by nobody."""
        paths = [*(self.base / "reg").iterdir(), *(self.base / "plug").glob("*.sock")]
        for path in paths:
            path.rename(path.with_suffix(".kept"))
        self.stop(plugin)
        for path in paths:
            path.with_suffix(".kept").rename(path)
        self.kubelet.close()  # and it takes the next instance's socket for a new one, by its time

    def claim(self, name, *devices, namespace="team-a", driver=DRIVER, pods=()):
        """An allocated claim in the API server, reserved for these pods, as (namespace, name, uid)."""
        results = [{"request": "gpu", "driver": driver, "pool": POOL, "device": device} for device in devices]
        obj = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]}},
            "status": {
                "allocation": {"devices": {"results": results}},
                "reservedFor": [{"resource": "pods", "name": pod, "uid": f"uid-of-{pod}"} for pod in pods],
            },
        }
        return namespace, name, self.town.api.store.put(obj)["metadata"]["uid"]

    def prepare(self, claim):
        """The plugin's answer for the claim."""
        return self.kubelet.plugin(DRIVER).prepare([claim]).claims[claim[2]]

    def unprepare(self, claim):
        return self.kubelet.plugin(DRIVER).unprepare([claim]).claims[claim[2]]

    def cdi_files(self):
        return sorted((self.base / "cdi").glob("*"))

    def records(self):
        return sorted(path.stem for path in (self.base / "plug/claims").glob("*.json"))

    def sockets(self):
        return sorted(
            path.name
            for folder in ("reg", "plug")
            for path in (self.base / folder).iterdir()
            if path.name.endswith(".sock")
        )

    def inventory(self):
        obj = self.town.api.store.get("nodeinventories", NODE)
        return None if obj is None else decode(obj)

    def entries(self):
        found = self.inventory()
        return {entry.id: entry.registered for entry in found.instances} if found else {}

    def leases(self):
        return sorted(obj["metadata"]["name"] for obj in self.town.api.store.listed("leases", NAMESPACE))

    def events(self):
        return self.town.api.store.listed("events.events.k8s.io", "team-a")
