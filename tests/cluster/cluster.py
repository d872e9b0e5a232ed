"""A real Kubernetes on loopback: one control plane, one node named `localhost`, all of it in one folder.

What a program's command line is says `components`; what the node's files say, `config`; this module knows the order.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from tests.cluster import addresses, components, config, containers, ending, images, pki
from tests.cluster.admin import Admin
from tests.cluster.build import Binaries
from tests.cluster.layout import Layout, why_unusable
from tests.cluster.places import ClusterError
from tests.cluster.processes import Processes

CONTROL_PLANE = ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")  # in the order of their end
NODE = ("kubelet", "containerd", "namespace")
KUBECTL_SECONDS = 120


class KubectlError(ClusterError):
    """kubectl ended with an error; `stderr` is what it said."""

    def __init__(self, arguments: Sequence[str], stderr: str) -> None:
        super().__init__(f"kubectl {' '.join(arguments)}: {stderr.strip()}")
        self.stderr = stderr


class Cluster:
    """One cluster in the folder `dir`; an object for a folder in which a cluster runs already speaks for that one.

    `node=False` leaves out containerd and the kubelet. Without a folder a new one is made under the system's folder for
    temporary files. `feature_gates` go to every component, `runtime_config` (such as `resource.k8s.io/v1alpha3=true`) to
    the API server.
    """

    def __init__(
        self,
        programs: Binaries,
        folder: Path | None = None,
        *,
        feature_gates: Mapping[str, bool] | None = None,
        runtime_config: Sequence[str] = (),
        node: bool = True,
    ) -> None:
        self.dir = folder.absolute() if folder else Path(tempfile.mkdtemp(prefix="lw-"))
        unusable = why_unusable(self.dir)  # the end of a cluster removes its folder: it may hold nothing else
        if unusable is not None:
            raise unusable
        self.layout = Layout(self.dir)
        self._programs = programs
        self._gates = dict(feature_gates or {})
        self._runtime_config = tuple(runtime_config)
        self._with_node = node
        self._processes = Processes(self.dir)
        self._admin = Admin(self.layout.pki)
        if self.layout.settings.exists():
            self.addresses = addresses.Addresses.load(self.layout.settings.read_text())
        else:
            self.addresses = addresses.choose()

    # What a test needs to know.

    @property
    def server(self) -> str:
        """The API server's URL, which is also where pods on the host network find the service `kubernetes`."""
        return self.addresses.server

    @property
    def ca(self) -> Path:
        return self.layout.pki / "ca.crt"

    @property
    def admin_kubeconfig(self) -> Path:
        return self.layout.pki / "admin.kubeconfig"

    @property
    def kubectl_path(self) -> Path:
        return Path(self._programs["kubectl"])

    @property
    def plugins_dir(self) -> Path:
        return self.layout.kubelet / "plugins"

    @property
    def plugins_registry(self) -> Path:
        return self.layout.kubelet / "plugins_registry"

    @property
    def cdi_dir(self) -> Path:
        """What the node sees as `/var/run/cdi`."""
        return self.layout.cdi

    @property
    def containerd_socket(self) -> Path:
        return self.layout.containerd_socket

    @property
    def ns_exec(self) -> list[str]:
        """A prefix for a command to run where containerd and kubelet run; its working directory becomes `/`."""
        pid = self._processes.running("namespace")
        if pid is None:
            raise ClusterError(f"the node of the cluster in {self.dir} does not run; start it first")
        return components.inside(pid)

    def running(self) -> dict[str, bool]:
        """Which of the cluster's programs run."""
        return running(self.dir)

    def log(self, component: str) -> Path:
        """The log file of one program, by the names of `running`."""
        return self._processes.log(component)

    # Its life.

    def start(self) -> None:
        """Starts what does not run yet and returns when pods can run; ClusterError, with nothing left, if that fails."""
        require_root()
        try:
            self._prepare()
            with ThreadPoolExecutor() as side:
                runtime = side.submit(self._start_runtime) if self._with_node else None
                self._start_control_plane()
                if runtime is not None:
                    runtime.result()
                    self.start_kubelet()
            self._await_pods_admissible()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stops all of it and keeps the data; for the node the next start is like one after a reboot."""
        self.stop_kubelet()
        containers.kill(self.layout.host)
        for name in (*NODE, *CONTROL_PLANE):
            self._processes.stop(name, seconds=5.0)
        ending.end_all(self.dir, signal.SIGTERM)
        shutil.rmtree(self.layout.host / "run", ignore_errors=True)

    def wipe(self) -> None:
        """Ends all of it at once and removes its folder; safe to repeat."""
        ending.wipe(self.dir)

    def start_kubelet(self) -> None:
        """Starts the kubelet and returns when it is healthy, its node Ready, and it knows its pods again."""
        command = self.ns_exec + components.kubelet(self._programs, self.layout)
        self._processes.start("kubelet", command, self._environment())
        healthy = partial(self._admin.is_answered, self.addresses.kubelet_health)
        self._processes.await_that("a healthy kubelet", healthy, "kubelet")
        self._processes.await_that("a node that is Ready", self._node_is_ready, "kubelet")
        self._processes.await_that("a kubelet that knows its pods", self._kubelet_knows_its_pods, "kubelet")

    def stop_kubelet(self) -> None:
        """Stops the kubelet; pods keep running."""
        self._processes.stop("kubelet")

    def restart_kubelet(self) -> None:
        self.stop_kubelet()
        self.start_kubelet()

    def start_apiserver(self) -> None:
        """Starts the API server and returns when it is ready."""
        command = components.apiserver(self._programs, self.layout, self.addresses, self._gates, self._runtime_config)
        self._processes.start("kube-apiserver", command, self._environment())
        ready = partial(self._admin.is_answered, f"{self.server}/readyz")
        self._processes.await_that("a ready API server", ready, "kube-apiserver")

    def stop_apiserver(self) -> None:
        """Stops the API server, which would otherwise wait for open watches for a minute."""
        self._processes.stop("kube-apiserver", seconds=1.0)

    def restart_apiserver(self) -> None:
        self.stop_apiserver()
        self.start_apiserver()

    # Its use.

    def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002 - as subprocess names it
        """What kubectl, as admin, wrote to its standard output; KubectlError when it refuses."""
        ended = subprocess.run(
            [self.kubectl_path, *arguments],
            input=input,
            stdin=None if input is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=self._environment() | {"KUBECONFIG": str(self.admin_kubeconfig)},
            timeout=KUBECTL_SECONDS,
        )
        if ended.returncode:
            raise KubectlError(arguments, ended.stderr)
        return ended.stdout

    def apply(self, manifest: str | Path) -> str:
        """Applies a file or folder given as Path, or YAML given as text."""
        if isinstance(manifest, Path):
            return self.kubectl("apply", "-f", str(manifest))
        return self.kubectl("apply", "-f", "-", input=manifest)

    def get(self, path: str) -> Any:
        """The API server's JSON answer to the admin's GET of `path`, quicker than kubectl; HTTPError as urllib has it."""
        return self._admin.get(f"{self.server}{path}")

    def import_image(self, archive: Path) -> None:
        """Loads an OCI archive; pods use it with `imagePullPolicy: Never`."""
        # an absolute path, because ctr reads a relative one as the name of a host
        command = [self._programs["ctr"], "--address", str(self.containerd_socket), "--namespace", "k8s.io"]
        ended = subprocess.run(
            [*command, "images", "import", str(archive)], capture_output=True, text=True, env=self._environment()
        )
        if ended.returncode:
            raise ClusterError(f"containerd does not take {archive}: {ended.stderr.strip()}")

    def bound_token(
        self,
        namespace: str,
        serviceaccount: str,
        *,
        pod: str | None = None,
        node: str | None = None,
        seconds: int = 3600,
    ) -> str:
        """A token of a service account as the kubelet would get it for a pod; bound to a pod, to a node, or to nothing."""
        spec: dict[str, Any] = {"expirationSeconds": seconds}
        if pod is not None:
            spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": pod}
        elif node is not None:
            spec["boundObjectRef"] = {"kind": "Node", "apiVersion": "v1", "name": node}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{serviceaccount}/token"
        answer = self.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(request))
        token: str = json.loads(answer)["status"]["token"]
        return token

    def kubeconfig_for(self, token: str) -> Path:
        """A kubeconfig file, in the cluster's folder, of whoever holds `token`."""
        descriptor, path = tempfile.mkstemp(prefix="token-", suffix=".kubeconfig", dir=self.layout.home)
        with os.fdopen(descriptor, "w") as file:
            file.write(pki.kubeconfig(self.server, self.ca, {"token": token}))
        return Path(path)

    # How it starts.

    def _prepare(self) -> None:
        self.dir.mkdir(parents=True, exist_ok=True)
        self.layout.settings.write_text(self.addresses.dump())
        self.layout.make_folders()
        if not self.layout.images.exists():
            pki.write(self.layout.pki, self.addresses.control_plane, self.server)
            images.write(self.layout.images, self._programs.busybox)
        config.write(self.layout, self.addresses, self._programs.runc, self._gates)

    def _start_control_plane(self) -> None:
        environment = self._environment()
        etcd = components.etcd(self._programs, self.layout, self.addresses)
        self._processes.start("etcd", etcd, environment)  # the API server waits for it by itself
        self.start_apiserver()
        for name, command in (
            ("kube-controller-manager", components.controller_manager),
            ("kube-scheduler", components.scheduler),
        ):
            arguments = command(self._programs, self.layout, self.addresses, self._gates)
            self._processes.start(name, arguments, environment)

    def _start_runtime(self) -> None:
        self._processes.start("namespace", components.namespace(self.layout), self._environment())
        self._processes.await_that("a mount namespace", self.layout.namespace_ready.exists, "namespace")
        command = self.ns_exec + components.containerd(self._programs, self.layout)
        self._processes.start("containerd", command, self._environment())
        self._processes.await_that("containerd's socket", self._containerd_serves, "containerd")
        for archive in sorted(self.layout.images.glob("*.tar")):
            self.import_image(archive)

    def _await_pods_admissible(self) -> None:
        """A pod is refused until its namespace has the default service account and is held back without the CA's."""
        for path in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
            there = partial(self._admin.is_answered, f"{self.server}/api/v1/namespaces/default/{path}")
            self._processes.await_that(f"the default {path}", there, "kube-controller-manager")

    # Whether it answers.

    def _node_is_ready(self) -> bool:
        node = self._admin.found(f"{self.server}/api/v1/nodes/{pki.NODE}")
        conditions = node["status"].get("conditions", []) if node else []
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def _kubelet_knows_its_pods(self) -> bool:
        """Until then it answers `pod does not exist` to an exec, although the node has long been Ready."""
        expected = self._admin.found(f"{self.server}/api/v1/pods?fieldSelector=spec.nodeName%3D{pki.NODE}")
        known = self._admin.found(f"{self.addresses.kubelet}/pods")
        return bool(expected and known) and _uids(expected) <= _uids(known)

    def _containerd_serves(self) -> bool:
        command = [self._programs["ctr"], "--address", str(self.containerd_socket), "version"]
        return self.containerd_socket.exists() and (
            subprocess.run(command, capture_output=True, env=self._environment()).returncode == 0
        )

    def _environment(self) -> dict[str, str]:
        """No proxies, no folders of the user's: only what the cluster's programs need."""
        return {
            "PATH": f"{self._programs.built}:{os.environ.get('PATH', os.defpath)}",
            "HOME": str(self.layout.home),
            "TMPDIR": str(self.layout.temporary),
        }


def _uids(pods: Any) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods["items"] or ()}


def require_root() -> None:
    """ClusterError for anybody else."""
    if os.geteuid() != 0:
        raise ClusterError("the cluster needs root, for the mounts and control groups of its node: run this as root")


def running(folder: Path) -> dict[str, bool]:
    """Which programs of the cluster in `folder` run."""
    return {name: Processes(folder).running(name) is not None for name in (*NODE, *CONTROL_PLANE)}
