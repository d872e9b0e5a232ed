"""A cluster with Lanewise on it, as the tests of this folder use it: pods and claims in, what they got out."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.cluster import Cluster
from tests.cluster.images import BUSYBOX
from tests.cluster.lanewise import DRIVER, Lanewise, Part, until

CLASS = "gpu.lanewise.dev"
SLICES = f"/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.driver%3D{DRIVER}"
INVENTORY = "/apis/lanewise.dev/v1alpha1/nodeinventories/localhost"


def request(name: str = "gpu", *, count: int = 1, selectors: Iterable[str] = (), **more: Any) -> dict[str, Any]:
    """One request of a claim for GPUs of ours."""
    exactly: dict[str, Any] = {"deviceClassName": CLASS, "count": count, **more}
    if selectors:
        exactly["selectors"] = [{"cel": {"expression": expression}} for expression in selectors]
    return {"name": name, "exactly": exactly}


def claim_spec(*requests: dict[str, Any]) -> dict[str, Any]:
    """The spec of a ResourceClaim."""
    return {"devices": {"requests": list(requests or (request(),))}}


def claim(name: str, *requests: dict[str, Any]) -> dict[str, Any]:
    """A ResourceClaim; one whole GPU unless said otherwise."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": claim_spec(*requests),
    }


def template(name: str, *requests: dict[str, Any]) -> dict[str, Any]:
    """A ResourceClaimTemplate of the same."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": claim_spec(*requests)},
    }


def pod(
    name: str,
    *,
    claims: Iterable[str] = (),
    templates: Iterable[str] = (),
    containers: Iterable[str] = ("main",),
    limits: dict[str, str] | None = None,
    grace_seconds: int = 1,
    restart: str = "Never",
    script: str = "trap 'exit 0' TERM; while :; do sleep 1000 & wait $!; done",
) -> dict[str, Any]:
    """A pod whose containers each use all of its claims; they sleep until they are told to end, unless `script` says else."""
    named = [{"name": f"claim-{n}", "resourceClaimName": each} for n, each in enumerate(claims)]
    made = [{"name": f"made-{n}", "resourceClaimTemplateName": each} for n, each in enumerate(templates)]
    resources: dict[str, Any] = {"claims": [{"name": each["name"]} for each in named + made]}
    if limits:
        resources["limits"] = limits
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": grace_seconds,
            "resourceClaims": named + made,
            "containers": [
                {
                    "name": each,
                    "image": BUSYBOX,
                    "imagePullPolicy": "Never",
                    "command": ["/bin/sh", "-c", script],
                    "resources": resources,
                }
                for each in containers
            ],
        },
    }


@dataclass(frozen=True, slots=True)
class Seen:
    """What a container sees of its GPUs."""

    uuids: dict[str, str]
    """Device name in capitals, `GPU_65_00_0` → uuid."""
    products: dict[str, str]
    nodes: dict[str, tuple[int, int]]
    """`/dev/nvidia0` → major and minor."""


@dataclass
class Site:
    """The cluster, Lanewise in it, and the objects a test made."""

    cluster: Cluster
    lanewise: Lanewise
    made: list[dict[str, Any]] = field(default_factory=list)

    @property
    def controller(self) -> Part:
        return self.lanewise.part("lanewise-controller")

    @property
    def plugin(self) -> Part:
        return self.lanewise.part("lanewise-plugin")

    def make_whole(self) -> None:
        """Start again whatever does not run, and wait until the GPUs are published."""
        if not self.cluster.running()["kube-apiserver"]:
            self.cluster.start_apiserver()
        if not self.cluster.running()["kubelet"]:
            self.cluster.start_kubelet()
        if self.controller.pid is None:
            self.lanewise.start_controller()
        if self.plugin.pid is None:
            self.lanewise.start_plugin()
        self.published(60)

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create the objects; they are deleted when the test is over."""
        self.made.extend(objects)
        self.cluster.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def delete(self, *objects: dict[str, Any], wait: bool = True, force: bool = False) -> None:
        """Delete the objects and wait until they are gone."""
        flags = ["--ignore-not-found", f"--wait={'true' if wait else 'false'}", "--timeout=90s"]
        if force:
            flags += ["--force", "--grace-period=0"]
        for each in objects:
            self.cluster.kubectl("delete", each["kind"], each["metadata"]["name"], *flags)

    def clean(self) -> None:
        """Delete what the test made, pods first, and see that nothing of it is left on the node."""
        made, self.made = self.made, []
        kinds: dict[str, list[str]] = {}
        for each in made:
            kinds.setdefault(each["kind"], []).append(each["metadata"]["name"])
        for kind in sorted(kinds, key=lambda kind: kind != "Pod"):
            self.cluster.kubectl("delete", kind, *kinds[kind], "--ignore-not-found", "--timeout=90s")
        until("no claim is left", lambda: not self.claims())
        until("nothing is left on the node", lambda: self.kept() == (set(), set(), {}), 90)

    def running(self, *pods: dict[str, Any] | str, seconds: float = 115) -> None:
        """Wait until the pods are Ready."""
        names = [each if isinstance(each, str) else each["metadata"]["name"] for each in pods]
        self.cluster.kubectl("wait", "--for=condition=Ready", f"--timeout={seconds:.0f}s", *(f"pod/{n}" for n in names))

    def pod(self, name: str) -> dict[str, Any]:
        """The pod as the API server has it."""
        found: dict[str, Any] = self.cluster.get(f"/api/v1/namespaces/default/pods/{name}")
        return found

    def pending_because(self, name: str, words: str) -> None:
        """Wait until the scheduler has said these words of the pod."""

        def said() -> bool:
            conditions = self.pod(name)["status"].get("conditions", [])
            return any(each["type"] == "PodScheduled" and words in each.get("message", "") for each in conditions)

        until(f"{name} is pending because {words!r}", said)

    def events(self, kind: str, name: str) -> list[str]:
        """The notes of the events on one object."""
        items = self.cluster.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
        return [e.get("note", "") for e in items if (e["regarding"]["kind"], e["regarding"]["name"]) == (kind, name)]

    def seen(self, name: str, container: str = "main") -> Seen:
        """What the container sees, by its own environment and device nodes."""
        script = "env | grep ^LANEWISE_DEVICE_; for n in /dev/nvidia[0-9]*; do stat -c 'node %n %t %T' $n; done; true"
        uuids, products, nodes = {}, {}, {}
        for line in self.cluster.kubectl("exec", name, "-c", container, "--", "/bin/sh", "-c", script).splitlines():
            if line.startswith("node "):
                _, path, major, minor = line.split()
                nodes[path] = (int(major, 16), int(minor, 16))
            else:
                key, _, value = line.removeprefix("LANEWISE_DEVICE_").partition("=")
                (products if key.endswith("_PRODUCT") else uuids)[key.removesuffix("_PRODUCT")] = value
        return Seen(uuids, products, nodes)

    def claims(self) -> list[dict[str, Any]]:
        """All claims of the default namespace."""
        items: list[dict[str, Any]] = self.cluster.get("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims")[
            "items"
        ]
        return items

    def slices(self) -> list[dict[str, Any]]:
        """Our driver's slices."""
        items: list[dict[str, Any]] = self.cluster.get(SLICES)["items"]
        return items

    def devices(self) -> dict[str, dict[str, Any]]:
        """Published devices by name."""
        return {device["name"]: device for each in self.slices() for device in each["spec"].get("devices", [])}

    def taints(self) -> set[str]:
        """Keys of the taints on any published device."""
        return {taint["key"] for device in self.devices().values() for taint in device.get("taints", [])}

    def published(self, seconds: float = 30) -> None:
        """Wait until all eight GPUs are there, untainted."""
        until("eight GPUs are published, untainted", lambda: len(self.devices()) == 8 and not self.taints(), seconds)

    def inventory(self) -> dict[str, Any]:
        """The node's NodeInventory."""
        found: dict[str, Any] = self.cluster.get(INVENTORY)
        return found

    def kept(self) -> tuple[set[str], set[str], dict[str, str]]:
        """What the plugin keeps: claim UIDs of records, of CDI files, and device → claim UID that holds it."""
        home = self.lanewise.plugin_dir
        records = {path.stem for path in (home / "claims").glob("*.json")}
        files = {path.stem.partition("_")[2] for path in self.cluster.cdi_dir.glob(f"{DRIVER}-claim_*.json")}
        holds = {path.name: path.readlink().name for path in (home / "devices").glob("*")}
        return records, files, holds

    def agrees(self, seconds: float = 30) -> None:
        """Wait until records, CDI files, holds and the cluster's allocated claims all tell the same."""

        def agree() -> bool:
            records, files, holds = self.kept()
            allocated = {c["metadata"]["uid"] for c in self.claims() if c.get("status", {}).get("reservedFor")}
            return records == files == allocated and set(holds.values()) <= records

        until("records, CDI files, holds and claims agree", agree, seconds)
