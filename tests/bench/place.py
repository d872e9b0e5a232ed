"""Where the bench measures: a real API server, and our programs as the image runs them, as processes of this machine.

Of Kubernetes only etcd and the API server run: scheduler, controller manager and kubelet would be noise, and what they would
do (devices allocated, sockets found) the bench does itself.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from api.kube.client import Client
from api.kube.config import load
from api.kube.errors import AlreadyExists, KubeError
from tests.cluster import components
from tests.cluster.build import binaries
from tests.cluster.cluster import Cluster
from tests.cluster.lanewise import DRIVER, NAMESPACE, Part, until
from tests.cluster.places import ClusterError, cache
from tests.cluster.processes import Processes

ROOT = Path(__file__).resolve().parents[2]
MACHINE = ROOT / "examples/machines/hgx-h100.yaml"
MEMORY_DISK = Path("/dev/shm")
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class ControlPlane(Cluster):
    """etcd and the API server, and nothing else."""

    def _start_control_plane(self) -> None:
        etcd = components.etcd(self._programs, self.layout, self.addresses)
        self._processes.start("etcd", etcd, self._environment())
        self.start_apiserver()

    def _await_pods_admissible(self) -> None:
        """There are no pods."""


@dataclass(frozen=True, slots=True)
class Place:
    """The running control plane, and where our programs keep their things."""

    cluster: ControlPlane
    packages: Path
    """What the image holds beside our own code: the production dependencies, and nothing that development adds."""
    volatile: Path
    """Stands for /var/run, in memory as on a node."""

    @property
    def processes(self) -> Processes:
        return Processes(self.cluster.dir)

    def client(self, *, pool_size: int = 4) -> Client:
        """Our own client, as administrator."""
        return Client(load(self.cluster.admin_kubeconfig, {}), user_agent="bench", pool_size=pool_size)

    def node_dir(self, node: str) -> Path:
        """What is durable of one node; short, for the sockets in it."""
        return self.cluster.dir / node

    def start(self, name: str, module: str, *flags: str, prefix: tuple[str, ...] = ()) -> Part:
        """A program of ours: the checkout's code on the image's packages, in an interpreter that sees nothing else."""
        # As deploy/image/install starts it: isolated, one path added.
        code = (
            f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(self.packages)!r}]; "
            f"from {module} import main; sys.exit(main())"
        )
        python = getattr(sys, "_base_executable", sys.executable)
        command = [*prefix, python, "-I", "-S", "-c", code, *flags]
        self.processes.start(name, command, {"HOME": str(self.cluster.dir)})
        return Part(name, self.processes)

    def start_controller(self) -> Part:
        """The controller, alone, so that nobody has to be asked who leads."""
        return self.start(
            "controller",
            "controller.main",
            f"--kubeconfig={self.cluster.admin_kubeconfig}",
            "--leader-election=false",
        )

    def start_plugin(self, node: str, machine: Path = MACHINE, *, prefix: tuple[str, ...] = ()) -> Part:
        """The plugin of a node. Its registry directory is `registry` below the node's directory."""
        base = self.node_dir(node)
        (base / "registry").mkdir(parents=True, exist_ok=True)
        return self.start(
            node,
            "kubeletplugin.main",
            f"--kubeconfig={self.cluster.admin_kubeconfig}",
            f"--node-name={node}",
            f"--plugin-dir={base / 'p'}",
            f"--registry-dir={base / 'registry'}",
            f"--cdi-dir={self.cdi_dir(node)}",
            f"--machine={machine}",
            prefix=prefix,
        )

    def cdi_dir(self, node: str) -> Path:
        return self.volatile / node


@contextmanager
def a_place(say: Callable[[str], None]) -> Iterator[Place]:
    """Everything running, and gone afterwards. ClusterError with the remedy where something is missing."""
    say("starting etcd and the API server")
    cluster = ControlPlane(binaries(), node=False)
    volatile = Path(tempfile.mkdtemp(prefix="lw-bench-", dir=MEMORY_DISK if MEMORY_DISK.is_dir() else None))
    try:
        packages = _packages(say)
        cluster.start()
        place = Place(cluster, packages, volatile)
        with place.client() as client:
            _install(client)
        yield place
    finally:
        cluster.wipe()
        shutil.rmtree(volatile, ignore_errors=True)


def node(client: Client, name: str) -> str:
    """Make a Node; its UID."""
    made = client.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    return str(made["metadata"]["uid"])


def stop(part: Part) -> None:
    """End a program as Kubernetes does, and see that it ended in time."""
    part.processes.stop(part.name, signal.SIGTERM, 20.0)


def _install(client: Client) -> None:
    for document in yaml.safe_load_all((ROOT / "deploy/crds/nodeinventories.yaml").read_text()):
        client.create(CRDS, document)
    for name in (NAMESPACE, "bench"):
        try:
            client.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        except AlreadyExists:
            continue

    def served() -> bool:
        try:
            client.get("/apis/lanewise.dev/v1alpha1/nodeinventories")
        except KubeError:
            return False
        return True

    until("the API server serves NodeInventories", served)


def _packages(say: Callable[[str], None]) -> Path:
    """The packages of the image, installed once for each version of the lock file."""
    locked = ROOT / "requirements/node.txt"
    folder = cache().parent / "bench" / hashlib.sha256(locked.read_bytes()).hexdigest()[:16]
    if folder.is_dir():
        return folder
    say("installing the packages of the image, once")
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=folder.parent))
    install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps")
    ended = subprocess.run(
        [sys.executable, *install, "--only-binary=:all:", "--target", str(fresh), "-r", str(locked)],
        capture_output=True,
        text=True,
        env=dict(os.environ),
    )
    if ended.returncode:
        shutil.rmtree(fresh, ignore_errors=True)
        raise ClusterError(f"the packages of {locked} cannot be installed: {ended.stderr.strip()[-300:]}")
    fresh.rename(folder)
    return folder


__all__ = ["DRIVER", "MACHINE", "NAMESPACE", "Place", "a_place", "node", "stop"]
