"""The plugin's sockets in directories of a test's own, with a Preparer that does what the test tells it."""

from collections.abc import Callable
from pathlib import Path

from api.claims import PreparedDevice
from api.names import ClaimRef
from kubeletplugin.sockets.health import DeviceHealth
from kubeletplugin.sockets.paths import SocketPaths, socket_paths
from kubeletplugin.sockets.server import KubeletSockets

DRIVER = "gpu.lanewise.dev"


class Fake:
    """A Preparer whose answers are functions; by default each claim has one device, and unprepare succeeds."""

    def __init__(self):
        self.calls: list[tuple[str, ClaimRef]] = []
        self.on_prepare: Callable = lambda ref, cancelled: (a_device(ref),)
        self.on_unprepare: Callable = lambda ref: None

    def prepare(self, ref, *, cancelled):
        self.calls.append(("prepare", ref))
        return self.on_prepare(ref, cancelled)

    def unprepare(self, ref):
        self.calls.append(("unprepare", ref))
        return self.on_unprepare(ref)


def a_device(ref, share_id=None):
    return PreparedDevice(
        requests=("gpu",),
        pool="node-a/gpu.lanewise.dev",
        device=f"gpu-{ref.uid}",
        cdi_ids=(f"gpu.lanewise.dev/claim={ref.uid}",),
        share_id=share_id,
    )


class Node:
    """The directories of one node, and the plugin instances in them."""

    def __init__(self, base: Path):
        self.registry = base / "reg"
        self.plugin_dir = base / "plug" / DRIVER
        self.registry.mkdir()
        self.instances: list[KubeletSockets] = []

    def paths(self, pod_uid: str | None = None) -> SocketPaths:
        return socket_paths(DRIVER, self.registry, self.plugin_dir, pod_uid=pod_uid)

    def plugin(
        self, preparer=None, *, pod_uid=None, devices=lambda: [DeviceHealth("p", "gpu-0")], **options
    ) -> KubeletSockets:
        """Not started yet; stopped at the end of the test."""
        instance = KubeletSockets(self.paths(pod_uid), preparer or Fake(), devices, **options)
        self.instances.append(instance)
        return instance

    def names(self) -> list[str]:
        return sorted(path.name for path in [*self.registry.iterdir(), *self.plugin_dir.iterdir()])
