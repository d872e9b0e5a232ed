"""A whole cluster in one process: stand-ins for Kubernetes' parts, and Lanewise itself as it runs in production.

API server, scheduler, claim controller and kubelets are threads of ours. Controller and node plugins are programs of their own,
with the command lines, accounts and rights of deploy/, each node in a folder of its own.
"""

import contextlib
import functools
import os
import secrets
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import structlog

import cli
from api import logs
from api.inventory import CONDITION_PUBLISHED
from api.kube.client import Client
from api.kube.credentials import FixedToken
from api.kube.errors import KubeError
from api.kube.paths import NODE_INVENTORIES, resource
from api.kube.server import Server
from api.names import NAMESPACE
from api.refusals import BadInput, Refused
from api.version import VERSION
from cli.sandbox import folder, processes
from cli.sandbox.apiserver import ApiServer
from cli.sandbox.apiserver.access import ADMIN
from cli.sandbox.claimcontroller import ClaimController
from cli.sandbox.folder import NodeFolder
from cli.sandbox.kubelet import Kubelet
from cli.sandbox.processes import Program
from cli.sandbox.rights import account, authorize_by
from cli.sandbox.scheduler import Scheduler
from cli.sandbox.workloads import PodFacts, Start, start_of
from cli.shipped import documents, shipped

T = TypeVar("T")
Object = dict[str, Any]

PATIENCE_SECONDS = 60.0
"""How long to wait for anything: hundreds of times what it takes, so that a busy machine is not taken for a fault."""
LOOK_SECONDS = 0.05
"""How often to look at what no watch tells of: programs, and what lies on disk."""
LAST_WORDS = 12
"""Lines of a log that are shown when something went wrong."""
_MANIFESTS = ("namespace", "deviceclasses", "deviceclass-extended-resource")
"""What of deploy/manifests is made an object. The roles hold without that (`cli.sandbox.rights`), the policies do not hold
here, and the workloads are programs."""
_SETTLING = frozenset({"Waiting", "NoLiveInstance", "NoInventory", "NoNode", "Withdrawn"})
"""Reasons of the condition Published that a cluster passes through while it starts."""
_SCHEDULER, _CLAIMS = "system:kube-scheduler", account("kube-system", "resource-claim-controller")
_PARTS = (account(NAMESPACE, "lanewise-controller"), account(NAMESPACE, "lanewise-node"))


class ToldToEnd(Exception):  # noqa: N818  # somebody's wish, no error
    """Somebody does not want the cluster any more."""


class _Part(Protocol):
    """A stand-in of Kubernetes."""

    def start(self) -> None:
        """Begin, and return when it does its work."""

    def stop(self) -> None:
        """End all that it started; safe to repeat, and without a start."""


class ClusterFailed(Exception):  # noqa: N818  # the cluster has, and says how
    """Something in the cluster did not go as it must; `words` are the ends of the logs that may say why."""

    def __init__(self, what: str, words: Mapping[Path, tuple[str, ...]]) -> None:
        super().__init__(what)
        self.what, self.words = what, words


@dataclass(frozen=True, slots=True)
class SandboxNode:
    """A node: its kubelet, and the plugin that looks after its GPUs."""

    name: str
    machine: Path
    folder: NodeFolder
    kubelet: Kubelet
    plugin: Program


class SandboxCluster:
    """`with SandboxCluster({"node-a": machine_file}) as cluster:` starts it, and leaves nothing behind.

    To be started and stopped by one thread that outlives it. Refused for a folder or port that cannot be had, or a part that is
    not installed; ClusterFailed for a program that ends, or does not do its part in time.
    """

    def __init__(
        self,
        machines: Mapping[str, Path],
        *,
        said: Callable[[str], None] = lambda _: None,
        ended: Callable[[], bool] = lambda: False,
        strangers: bool = False,
    ) -> None:
        """One node for each machine file. `said` hears of each part as it is up. `ended` is asked again and again whether to go
        on; where not, ToldToEnd is raised. `strangers`: see `authorize_by`."""
        self._machines = machines
        self._up = said
        self._ended = ended
        self._strangers = strangers
        self._ending = contextlib.ExitStack()
        self._programs: list[Program] = []
        self._tokens: dict[str, str] = {}
        self.nodes: dict[str, SandboxNode] = {}
        self.folder: Path
        """All that it keeps on disk; gone when it is stopped."""
        self.api: ApiServer
        self.client: Client
        """An administrator's."""

    def __enter__(self) -> Self:
        try:
            self._start()
        except KubeError as error:
            failure = self.failed(error.what)
            self.stop()
            raise failure from error
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End every part and remove the folder; safe to repeat."""
        self._ending.close()

    @property
    def kubeconfig(self) -> Path:
        """For kubectl, as the administrator."""
        return self.folder / "kubeconfig"

    # What is there.

    def objects(self, plural: str, namespace: str = "") -> list[Object]:
        """All objects of a kind as the API server has them now."""
        return self.api.store.listed(plural, namespace)

    def find(self, plural: str, name: str, namespace: str = "default") -> Object | None:
        """One object; None when there is none."""
        return self.api.store.get(plural, name, namespace)

    # What people do.

    def apply(self, obj: Object, namespace: str = "default") -> Object:
        """As `kubectl apply --server-side` does."""
        return self.client.apply(self._path(obj, namespace), obj, field_manager="kubectl", force=True)

    def delete(self, obj: Object, namespace: str = "default") -> None:
        """As `kubectl delete --wait=false` does."""
        self.client.delete(self._path(obj, namespace))

    def await_that(self, what: str, true: Callable[[], T]) -> T:
        """The first true answer; asked anew whenever an object changes. ClusterFailed when there is none in time."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        store = self.api.store
        while True:
            version = store.version
            if answer := true():
                return answer
            self._see_that_all_run()
            self._see_that_it_goes_on()
            if time.monotonic() > deadline:
                raise self.failed(f"not within {PATIENCE_SECONDS:.0f} s: {what}")
            with store.changed:
                if store.version == version:
                    store.changed.wait(LOOK_SECONDS)

    def watch_over(self) -> None:
        """Until told to end. ClusterFailed when a program ends before that."""
        while not self._ended():
            self._see_that_all_run()
            time.sleep(LOOK_SECONDS)

    def failed(self, what: str) -> ClusterFailed:
        """The error to raise, with the ends of all logs."""
        words = {
            path: tuple(path.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_WORDS:])
            for path in sorted((self.folder / "logs").glob("*.log"))
        }
        return ClusterFailed(what, {path: lines for path, lines in words.items() if lines})

    # How it starts.

    def _start(self) -> None:
        self.folder = folder.make(self._machines)
        self._ending.callback(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "logs").mkdir()
        self._keep_our_log()
        self._start_api()
        self._install()
        self._ending.callback(self._end_programs)
        self._run("controller", self._controller())
        plugins = {name: self._start_plugin(name, machine) for name, machine in self._machines.items()}
        scheduler = Scheduler(self._client_for(_SCHEDULER))
        self._begin(scheduler)
        self._said("scheduler")
        self._begin(ClaimController(self._client_for(_CLAIMS)))
        self._said("claim controller")
        for name, plugin in plugins.items():
            kubelet = self._kubelet(name)
            self._begin(kubelet)
            self.nodes[name] = SandboxNode(name, self._machines[name], self._node(name), kubelet, plugin)
            self._said(f"kubelet of {name}")
        for name in self.nodes:
            self.await_that(f"a word of the controller on {name}", functools.partial(self.settled, name))
            self._said(f"Lanewise on {name}")

    def _said(self, part: str) -> None:
        self._up(part)
        self._see_that_it_goes_on()

    def _see_that_it_goes_on(self) -> None:
        if self._ended():
            raise ToldToEnd

    def _see_that_all_run(self) -> None:
        for program in self._programs:
            if program.ended is not None:
                raise self.failed(f"the {program.name} ended with exit code {program.ended}")

    def settled(self, node: str) -> Object | None:
        """The condition Published of a node's inventory; None while the node is still starting."""
        inventory = self.find(NODE_INVENTORIES.plural, node, "")
        for condition in ((inventory or {}).get("status") or {}).get("conditions") or ():
            if condition["type"] == CONDITION_PUBLISHED and condition["reason"] not in _SETTLING:
                return dict(condition)
        return None

    def _keep_our_log(self) -> None:
        """What the stand-ins log goes to a file while the cluster is there: the terminal belongs to whoever tells of it."""
        before = structlog.get_config()
        self._ending.callback(structlog.configure, **before)
        out = self._ending.enter_context((self.folder / "logs/stand-ins.log").open("w", encoding="utf-8"))
        logs.configure("json", "info", stream=out)

    def _start_api(self) -> None:
        kubelets = [f"system:node:{name}" for name in self._machines]
        for user in (ADMIN, _SCHEDULER, _CLAIMS, *_PARTS, *kubelets):
            self._tokens[user] = secrets.token_urlsafe(24)
        rbac = documents(shipped("deploy/manifests/rbac.yaml"))
        grants = authorize_by(rbac, strangers=self._strangers)
        self.api = ApiServer(
            tokens={token: user for user, token in self._tokens.items()},
            authorize=lambda user, verb, path: None if user == _CLAIMS else grants(user, verb, path),
        )
        try:
            self.api.start()
        except OSError as error:
            problem = f"cannot be listened on: {error.strerror or error}"
            raise Refused(BadInput("127.0.0.1", problem, "see that the loopback interface is up")) from error
        self._ending.callback(self.api.stop)
        self.client = self._client_for(ADMIN)
        self.api.kubeconfig(self.kubeconfig, self._tokens[ADMIN])
        self._said("API server")

    def _install(self) -> None:
        """The definition and the classes of deploy/."""
        for path in (shipped("deploy/crds"), *(shipped(f"deploy/manifests/{name}.yaml") for name in _MANIFESTS)):
            for obj in documents(path):
                self.apply(obj)

    def _controller(self) -> Start:
        (workload,) = documents(shipped("deploy/manifests/controller.yaml"))
        facts = PodFacts("lanewise-controller-0", NAMESPACE, str(uuid.uuid4()), next(iter(self._machines), ""))
        return start_of(workload, facts)

    def _start_plugin(self, node: str, machine: Path) -> Program:
        (workload,) = documents(shipped("deploy/manifests/kubeletplugin.yaml"))
        facts = PodFacts(f"lanewise-kubeletplugin-{node}", NAMESPACE, str(uuid.uuid4()), node)
        here = self._node(node)
        for directory in (here.registry_dir, here.plugin_dir, here.cdi_dir):
            directory.mkdir(parents=True)
        instead = (
            f"--registry-dir={here.registry_dir}",
            f"--plugin-dir={here.plugin_dir}",
            f"--cdi-dir={here.cdi_dir}",
            f"--machine={machine.resolve()}",
            "--machine-nodes=auto",
            # There is no driver on a machine that is made up.
            "--driver-root=/",
            "--dev-root=/",
        )
        return self._run(f"node plugin of {node}", start_of(workload, facts, instead))

    def _kubelet(self, node: str) -> Kubelet:
        here = self._node(node)
        client = self._client_for(f"system:node:{node}")
        return Kubelet(client, node, registry_dir=here.registry_dir, cdi_dirs=(here.cdi_dir,))

    def _node(self, name: str) -> NodeFolder:
        return NodeFolder(self.folder / name)

    def _begin(self, part: _Part) -> None:
        self._ending.callback(part.stop)
        part.start()

    def _client_for(self, user: str) -> Client:
        server = Server(self.api.url, tokens=FixedToken(self._tokens[user]))
        agent = f"{user.rpartition(':')[2]}/{VERSION}"
        return self._ending.enter_context(Client(server, user_agent=agent, pool_size=8))

    def _run(self, name: str, how: Start) -> Program:
        file = name.replace(" ", "-")
        kubeconfig = self.api.kubeconfig(
            self.folder / f"{file}.kubeconfig", self._tokens[account(NAMESPACE, how.account)]
        )
        command = [sys.executable, "-m", how.module, *how.arguments, f"--kubeconfig={kubeconfig}"]
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "PYTHONPATH": str(Path(cli.__file__).resolve().parents[1]),
            "HOME": str(self.folder),
            **how.environment,
        }
        program = processes.start(name, command, environment, self.folder / "logs" / f"{file}.log")
        self._programs.append(program)
        return program

    def _end_programs(self) -> None:
        processes.stop(self._programs)
        self._programs = []

    def _path(self, obj: Object, namespace: str) -> str:
        kind = self.api.served.of_object(obj)
        meta = obj["metadata"]
        where = meta.get("namespace", namespace) if kind.namespaced else None
        return resource(kind.group, kind.version, kind.plural, where, meta["name"])
