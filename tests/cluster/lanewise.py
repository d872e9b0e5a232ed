"""Lanewise on a cluster, from the manifests of `deploy/`: its parts as processes of this machine, with the tokens of pods.

In this form a test can stop, freeze and kill each part at will. `tests/e2e/test_image.py` runs them as pods instead.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import pki
from tests.cluster.cluster import Cluster
from tests.cluster.pki import NODE
from tests.cluster.places import ClusterError
from tests.cluster.processes import Processes

ROOT = Path(__file__).resolve().parents[2]
DRIVER = "gpu.lanewise.dev"
NAMESPACE = "lanewise-system"
DEFAULT_MACHINE = ROOT / "examples/machines/hgx-h100.yaml"
POLL_SECONDS = 0.05


def until(what: str, true: Callable[[], object], seconds: float = 60.0) -> None:
    """Return when `true` is; AssertionError that says what was waited for when it is not in time."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(POLL_SECONDS)


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader finds all of it or what was there before."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_text(text)
    temporary.replace(path)


@dataclass(frozen=True, slots=True)
class Part:
    """One running part of Lanewise."""

    name: str
    processes: Processes

    @property
    def pid(self) -> int | None:
        return self.processes.running(self.name)

    @property
    def log(self) -> str:
        """What it said so far."""
        path = self.processes.log(self.name)
        return path.read_text(errors="replace") if path.exists() else ""

    def stop(self) -> None:
        """As Kubernetes stops a pod: SIGTERM, and SIGKILL after a while."""
        self.processes.stop(self.name, signal.SIGTERM, 30.0)

    def kill(self) -> None:
        """SIGKILL: no time to clean up."""
        self.processes.stop(self.name, signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal such as SIGSTOP."""
        pid = self.pid
        assert pid is not None, f"{self.name} does not run"
        os.kill(pid, number)


class Lanewise:
    """What is installed in one cluster."""

    def __init__(self, cluster: Cluster, machine: Path = DEFAULT_MACHINE) -> None:
        self.cluster = cluster
        self.machine = machine
        self.plugin_dir = cluster.plugins_dir / DRIVER
        self._processes = Processes(cluster.dir)

    def install(self) -> None:
        """The CRDs, accounts, rights, policies and classes of `deploy/`, and no workload."""
        self.cluster.apply(ROOT / "deploy/crds")
        self.cluster.kubectl("wait", "--for=condition=Established", "crd/nodeinventories.lanewise.dev")
        for name in ("namespace", "rbac", "policies", "deviceclasses", "deviceclass-extended-resource"):
            self.cluster.apply(ROOT / f"deploy/manifests/{name}.yaml")

    def part(self, name: str) -> Part:
        """A part by its name, whether it runs or not."""
        return Part(name, self._processes)

    def start_controller(self, *flags: str, name: str = "lanewise-controller") -> Part:
        """The controller, with a token such as its pod would have."""
        token = self.cluster.bound_token(NAMESPACE, "lanewise-controller")
        return self._start(
            name,
            "controller.main",
            f"--kubeconfig={self.cluster.kubeconfig_for(token)}",
            "--leader-election=false",
            *flags,
        )

    def start_plugin(
        self, *flags: str, name: str = "lanewise-plugin", machine: Path | None = None, pod_uid: str | None = None
    ) -> Part:
        """The node's plugin, with a token bound to the node."""
        self.renew_token(name)
        return self._start(
            name,
            "kubeletplugin.main",
            f"--kubeconfig={self._token(name).with_suffix('.kubeconfig')}",
            f"--node-name={NODE}",
            f"--plugin-dir={self.plugin_dir}",
            f"--registry-dir={self.cluster.plugins_registry}",
            f"--cdi-dir={self.cluster.cdi_dir}",
            f"--machine={machine or self.machine}",
            *([f"--pod-uid={pod_uid}"] if pod_uid else []),
            *flags,
        )

    def renew_token(self, name: str = "lanewise-plugin") -> None:
        """Write the plugin's token anew, bound to the node, where the plugin reads it: as the kubelet does for a pod."""
        token = self._token(name)
        write_whole(token, self.cluster.bound_token(NAMESPACE, "lanewise-node", node=NODE))
        user = {"tokenFile": str(token)}
        write_whole(token.with_suffix(".kubeconfig"), pki.kubeconfig(self.cluster.server, self.cluster.ca, user))

    def _token(self, name: str) -> Path:
        return self.cluster.dir / "home" / f"{name}.token"

    def _start(self, name: str, module: str, *flags: str) -> Part:
        part = self.part(name)
        if part.pid is not None:
            raise ClusterError(f"{name} runs already")
        environment = {"PYTHONPATH": str(ROOT), "HOME": str(self.cluster.dir)}
        self._processes.start(name, [sys.executable, "-m", module, *flags], environment)
        return part


def install(cluster: Cluster, machine: Path) -> Lanewise:
    """Install Lanewise and start both parts; returns when the node's GPUs are published."""
    lanewise = Lanewise(cluster, machine.resolve())
    lanewise.install()
    parts = [lanewise.start_controller(), lanewise.start_plugin()]
    path = f"/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.driver%3D{DRIVER}"

    def published() -> bool:
        for part in parts:
            if part.pid is None:
                raise ClusterError(f"{part.name} ended; it said:\n{part.log[-1000:]}")
        return bool(cluster.get(path)["items"])

    until("the node's GPUs are published", published)
    return lanewise
