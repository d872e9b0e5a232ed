"""A node with a kubelet at work, plugins that do what a test tells them, and people who make pods and claims."""

import threading
import time
from pathlib import Path

from api.claims import PreparedDevice
from api.kube.paths import CLAIMS, PODS
from api.refusals import BadInput, Refused
from cli.sandbox.apiserver import ApiServer
from cli.sandbox.kubelet import Kubelet
from kubeletplugin.cdi.spec import CdiDevice, DeviceNode, Edits, Spec, encode, to_document
from kubeletplugin.sockets.health import DeviceHealth
from kubeletplugin.sockets.paths import socket_paths
from kubeletplugin.sockets.server import KubeletSockets
from tests.support.controlled_cluster import a_client

NODE = "node-a"
GPUS, NICS = "gpu.lanewise.dev", "nic.example.com"
SECONDS = 10.0


class Driver:
    """A Preparer that writes a CDI file for each claim, unless it is told to fail or to wait."""

    def __init__(self, name: str, cdi: Path, devices: dict[str, list[str]]):
        self.name = name
        self.cdi = cdi
        self.devices = devices
        """Claim name → its requests, each of which gets one device."""
        self.calls: list[tuple[str, str]] = []
        self.failing: str | None = None
        self.going = threading.Event()
        self.going.set()

    def prepare(self, ref, *, cancelled):
        self.calls.append(("prepare", ref.name))
        assert self.going.wait(SECONDS)
        self._fail()
        requests = self.devices.get(ref.name, ["gpu"])
        names = [f"{ref.uid}-{request}" for request in requests]
        spec = Spec(
            f"{self.name}/claim",
            tuple(
                CdiDevice(name, Edits(env=(f"GOT_{request.upper()}={ref.name}",), device_nodes=(self._node(request),)))
                for name, request in zip(names, requests, strict=True)
            ),
            Edits(env=(f"DRIVER={self.name}",)),
        )
        (self.cdi / f"{self.name}-{ref.uid}.json").write_bytes(encode(to_document(spec)))
        return tuple(
            PreparedDevice((request,), "pool", f"device-{request}", (f"{self.name}/claim={name}",))
            for name, request in zip(names, requests, strict=True)
        )

    def unprepare(self, ref):
        self.calls.append(("unprepare", ref.name))
        self._fail()
        (self.cdi / f"{self.name}-{ref.uid}.json").unlink(missing_ok=True)

    def _fail(self):
        if self.failing:
            raise Refused(BadInput("claim", self.failing, "try again"))

    @staticmethod
    def _node(request):
        return DeviceNode(f"/dev/{request}", host_path=f"/machine/dev/{request}", type="c", major=195, minor=0)


class Clock:
    """A time that stands still unless it is moved."""

    def __init__(self):
        self.time = 1000.0

    def __call__(self):
        return self.time


class World:
    """Everything of one test; `close` ends all of it."""

    def __init__(self, base: Path, api: ApiServer):
        self.base, self.api = base, api
        self.registry, self.cdi = base / "reg", base / "cdi"
        for folder in (self.registry, self.cdi):
            folder.mkdir()
        self.client = a_client(api, "people")
        self.kubelet_client = a_client(api, "kubelet")
        self.clock = Clock()
        self.kubelets: list[Kubelet] = []
        self.plugins: list[KubeletSockets] = []

    def close(self) -> None:
        for kubelet in self.kubelets:
            kubelet.stop()
        for plugin in self.plugins:
            plugin.stop(0)
        self.client.close()
        self.kubelet_client.close()

    def kubelet(self, **options) -> Kubelet:
        """Started."""
        options = {"clock": self.clock, "retry_seconds": 0.1, **options}
        kubelet = Kubelet(self.kubelet_client, NODE, registry_dir=self.registry, cdi_dirs=(self.cdi,), **options)
        self.kubelets.append(kubelet)
        kubelet.start()
        return kubelet

    def driver(self, name: str = GPUS, **devices: list[str]) -> Driver:
        return Driver(name, self.cdi, devices)

    def plugin(self, driver: Driver, *, pod_uid=None, health=lambda: (), **options) -> KubeletSockets:
        """Started."""
        paths = socket_paths(driver.name, self.registry, self.base / "p" / driver.name, pod_uid=pod_uid)
        plugin = KubeletSockets(paths, driver, health, **options)
        self.plugins.append(plugin)
        plugin.start()
        return plugin

    def kill(self, plugin: KubeletSockets) -> None:
        """As near to SIGKILL as one process gets: its sockets stay where they are, answered by nobody."""
        sockets = list(self.base.rglob("*.sock"))
        for path in sockets:
            path.rename(path.with_suffix(".kept"))
        plugin.stop(0)
        for path in sockets:
            path.with_suffix(".kept").rename(path)

    def claim(self, name: str, *drivers: str, pods=("p",), owner=None, requests=("gpu",)):
        """An allocated claim, reserved for pods of these names, whose UIDs are uid-NAME."""
        results = [
            {"request": request, "driver": driver, "pool": "pool", "device": f"device-{request}"}
            for driver in drivers or (GPUS,)
            for request in requests
        ]
        body = {
            "apiVersion": CLAIMS.api_version,
            "kind": CLAIMS.kind,
            "metadata": {"name": name, "namespace": "default", **({"ownerReferences": [owner]} if owner else {})},
            "spec": {
                "devices": {"requests": [{"name": each, "exactly": {"deviceClassName": "c"}} for each in requests]}
            },
            "status": {
                "allocation": {"devices": {"results": results}},
                "reservedFor": [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods],
            },
        }
        return self.api.store.put(body)

    def pod(self, name: str = "p", claims=("c",), containers=None, templates=(), **status):
        """A pod on the node, whose UID is uid-NAME. `containers` maps names to the (claim, request)s they use; by default one
        uses all claims. `templates` names those that claims of the same names are made from."""
        containers = containers or {"main": [(claim, "") for claim in claims]}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {
                "nodeName": NODE,
                "containers": [
                    {
                        "name": container,
                        "image": "image",
                        "resources": {
                            "claims": [{"name": c, **({"request": r} if r else {})} for c, r in uses],
                        },
                    }
                    for container, uses in containers.items()
                ],
                "resourceClaims": [
                    *({"name": claim, "resourceClaimName": claim} for claim in claims),
                    *({"name": template, "resourceClaimTemplateName": template} for template in templates),
                ],
            },
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}], **status},
        }
        return self.api.store.put(body)

    def delete(self, name: str = "p", grace: int = 30) -> None:
        self.client.delete(PODS.path("default", name), grace_seconds=grace)

    def found(self, name: str = "p"):
        return self.api.store.get("pods", name)

    def phase(self, name: str = "p"):
        return (self.found(name) or {}).get("status", {}).get("phase")

    def health(self, name: str = "p", container: int = 0):
        """`allocatedResourcesStatus` of a container, by the name of its claim and request."""
        statuses = self.found(name)["status"].get("containerStatuses") or [{}]
        return {each["name"]: each["resources"] for each in statuses[container].get("allocatedResourcesStatus") or ()}

    def notes(self, reason: str) -> list[str]:
        return [event["note"] for event in self.api.store.listed("events.events.k8s.io") if event["reason"] == reason]

    def slice(self, name: str, node: str = NODE, driver: str = GPUS) -> None:
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name},
            "spec": {
                "driver": driver,
                "nodeName": node,
                "pool": {"name": "pool", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "gpu-0"}],
            },
        }
        self.api.store.put(body)

    def slices(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.api.store.listed("resourceslices")]


def until(holds, seconds: float = SECONDS):
    """What `holds` gives once it is true."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, "it did not come to pass"
        threading.Event().wait(0.01)
    return found


__all__ = ["GPUS", "NICS", "NODE", "DeviceHealth", "Driver", "World", "until"]
