"""The command line and environment that a container of deploy/ would start with, for a program started without one."""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PROGRAMS = {"lanewise-controller": "controller.main", "lanewise-kubeletplugin": "kubeletplugin.main"}
"""Modules behind the commands of the image (pyproject.toml, project.scripts)."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What the downward API would say of the pod."""

    name: str
    namespace: str
    uid: str
    node: str

    def field(self, path: str) -> str:
        """The value at a field path; ValueError for one that is not known here."""
        known = {
            "metadata.name": self.name,
            "metadata.namespace": self.namespace,
            "metadata.uid": self.uid,
            "spec.nodeName": self.node,
        }
        if path not in known:
            raise ValueError(f"no {path} without a cluster")
        return known[path]


@dataclass(frozen=True, slots=True)
class Start:
    """How to start a program."""

    module: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    account: str
    """Name of its service account."""


def start_of(workload: Mapping[str, Any], pod: PodFacts, instead: Sequence[str] = ()) -> Start:
    """How the only container of a Deployment or DaemonSet starts; flags in `instead` are added, and replace those it has.

    A port is replaced by one that is free: the manifest's is free in a container only.
    """
    spec = workload["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    (command,) = container["command"]
    replaced = {_flag(argument) for argument in instead}
    given = [argument for argument in container.get("args") or () if _flag(argument) not in replaced]
    arguments = [f"--http-port={free_port()}" if _flag(a) == "--http-port" else a for a in given]
    environment = {
        entry["name"]: entry["value"] if "value" in entry else pod.field(entry["valueFrom"]["fieldRef"]["fieldPath"])
        for entry in container.get("env") or ()
    }
    return Start(PROGRAMS[command], (*arguments, *instead), environment, spec["serviceAccountName"])


def free_port() -> int:
    """A TCP port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _flag(argument: str) -> str:
    return argument.partition("=")[0]
