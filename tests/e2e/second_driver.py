"""A small DRA driver of somebody else's, so that claims can have results of two drivers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Self

from api.claims import PreparedDevice
from api.names import ClaimRef
from kubeletplugin.sockets.health import DeviceHealth
from kubeletplugin.sockets.paths import socket_paths
from kubeletplugin.sockets.server import KubeletSockets
from tests.cluster.cluster import Cluster
from tests.cluster.lanewise import until

DRIVER = "second.example.com"
POOL = "second"
DEVICE = "thing"


class SecondDriver:
    """Publishes one device and prepares it with nothing but an environment variable; can be told to fail."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.failing = False
        self.prepared: set[str] = set()
        paths = socket_paths(DRIVER, cluster.plugins_registry, cluster.plugins_dir / DRIVER)
        self._sockets = KubeletSockets(paths, self, lambda: [DeviceHealth(POOL, DEVICE)])

    def __enter__(self) -> Self:
        self._sockets.start()
        device_class = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": DRIVER},
            "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
        }
        published = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": DRIVER},
            "spec": {
                "driver": DRIVER,
                "nodeName": "localhost",
                "pool": {"name": POOL, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": DEVICE}],
            },
        }
        self._cluster.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": [device_class, published]}))
        # A pod that comes before would be tried again only after a minute.
        until("the kubelet knows the second driver", self._sockets.registered)
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.kubectl("delete", "resourceslice", DRIVER, "--ignore-not-found")
        self._cluster.kubectl("delete", "deviceclass", DRIVER, "--ignore-not-found")
        self._sockets.stop()
        for path in self._files():
            path.unlink()

    def prepare(self, ref: ClaimRef, *, cancelled: Callable[[], bool]) -> tuple[PreparedDevice, ...]:
        """Write a CDI file with a variable, or fail as told."""
        if self.failing:
            raise RuntimeError("the second driver was told to fail")
        name = f"{ref.uid}-{DEVICE}"
        document = {
            "cdiVersion": "0.5.0",
            "kind": f"{DRIVER}/claim",
            "devices": [{"name": name, "containerEdits": {"env": ["SECOND_DRIVER=here"]}}],
        }
        (self._cluster.cdi_dir / f"{DRIVER}-{ref.uid}.json").write_text(json.dumps(document))
        self.prepared.add(ref.uid)
        return (PreparedDevice(("second",), POOL, DEVICE, (f"{DRIVER}/claim={name}",)),)

    def unprepare(self, ref: ClaimRef) -> None:
        """Take the file away."""
        (self._cluster.cdi_dir / f"{DRIVER}-{ref.uid}.json").unlink(missing_ok=True)
        self.prepared.discard(ref.uid)

    def _files(self) -> list[Path]:
        return list(self._cluster.cdi_dir.glob(f"{DRIVER}-*.json"))
