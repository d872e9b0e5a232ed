"""What the story looks at: pods and claims in the cluster, records and CDI files on the node's disk."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from api.names import GPU_DRIVER
from cli.sandbox.cluster import SandboxCluster, SandboxNode
from cli.story.holdings import Device, Holding, Waiting, devices_of, holdings, is_running, results, why_waiting
from kubeletplugin.cdi import naming

Object = dict[str, Any]
Versions = tuple[tuple[str, str], ...]


class NotAsTold(Exception):  # noqa: N818  # the story would be false from here on
    """Something is not as the story says; `saw` is what is there instead."""

    def __init__(self, expected: str, saw: str) -> None:
        super().__init__(f"expected {expected}; saw {saw}")
        self.expected, self.saw = expected, saw


class View:
    """A cluster with one node, looked at anew with each call."""

    def __init__(self, cluster: SandboxCluster) -> None:
        self._cluster = cluster
        self.node: SandboxNode
        (self.node,) = cluster.nodes.values()
        self._order: list[str] = []

    def asked(self, pods: Sequence[str]) -> None:
        """These pods were made, after all others: the order in which they are shown."""
        self._order.extend(pods)

    # The cluster.

    def must(self, plural: str, name: str, namespace: str = "default") -> Object:
        """One object; NotAsTold when there is none."""
        found = self._cluster.find(plural, name, namespace)
        if found is None:
            raise NotAsTold(f"{plural} {name}", "none")
        return found

    def devices(self) -> tuple[Device, ...]:
        """What is published."""
        return devices_of(self._cluster.objects("resourceslices"))

    def free(self) -> list[Device]:
        """Published devices that no claim has and no taint keeps from new pods."""
        taken = {result["device"] for claim in self.claims() for result in results(claim)}
        return [device for device in self.devices() if device.name not in taken and not device.taints]

    def pods(self) -> list[Object]:
        """In the order in which they were made."""
        found = self._cluster.objects("pods", "default")
        return sorted(found, key=lambda pod: self._order.index(pod["metadata"]["name"]))

    def claims(self) -> list[Object]:
        """All claims of the story."""
        return self._cluster.objects("resourceclaims", "default")

    def holdings(self, pod: str | None = None) -> tuple[Holding, ...]:
        """What the containers of running pods hold; of one pod where it is named."""
        running = [one for one in self.pods() if is_running(one) and pod in (None, one["metadata"]["name"])]
        return holdings(running, self.claims())

    def waiting(self) -> list[Waiting]:
        """Pods that the scheduler could not place, with its words."""
        return [waits for pod in self.pods() if not is_running(pod) and (waits := why_waiting(pod)) is not None]

    def are_settled(self, names: Sequence[str], running: int) -> bool:
        """Whether so many of these pods run, and the others were told why not."""
        pods = [pod for pod in self.pods() if pod["metadata"]["name"] in names]
        run = [pod for pod in pods if is_running(pod)]
        return len(run) == running and all(pod in run or why_waiting(pod) is not None for pod in pods)

    def versions(self) -> Versions:
        """What changes whenever a pod or claim does."""
        return _versions((*self.pods(), *self.claims()))

    def published(self) -> Versions:
        """What changes whenever the inventory or a slice does."""
        kinds = ("nodeinventories", "resourceslices")
        return _versions([obj for kind in kinds for obj in self._cluster.objects(kind)])

    # The node's disk.

    def record(self, uid: str) -> Path:
        """Where the plugin keeps its record of a claim."""
        return self.node.folder.plugin_dir / "claims" / f"{uid}.json"

    def cdi_file(self, uid: str) -> Path:
        """Where the CDI file of a claim is."""
        return self.node.folder.cdi_dir / naming.file_name(GPU_DRIVER, uid)

    def cdi(self, uid: str) -> Object:
        """What it says; NotAsTold when there is none."""
        path = self.cdi_file(uid)
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise NotAsTold(f"a CDI file {path}", error.strerror or str(error)) from error

    def left_on_disk(self) -> list[Path]:
        """All that is there of any claim: records, held devices, CDI files."""
        here = self.node.folder
        folders = (here.cdi_dir, here.plugin_dir / "claims", here.plugin_dir / "devices")
        return [path for folder in folders if folder.is_dir() for path in folder.iterdir()]


def _versions(objects: Iterable[Object]) -> Versions:
    return tuple((obj["metadata"]["uid"], obj["metadata"]["resourceVersion"]) for obj in objects)
