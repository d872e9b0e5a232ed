"""`lanewise doctor`: what keeps Lanewise from working on a node or in a cluster, each with its remedy."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from api.names import GPU_DRIVER, NAMESPACE, checked_driver_name
from api.refusals import Refused
from api.timestamps import utc_now
from cli.doctor.findings import Finding, failure, ok, plural, warning, worst

if TYPE_CHECKING:
    from cli.doctor.cluster import Cluster

_PATHS = (
    ("--host-root", "/", "the node's root file system, as seen from here"),
    ("--driver-root", None, "root of the NVIDIA driver's files (default: the node's root)"),
    ("--sysfs-root", "/sys", "sysfs"),
    ("--proc-root", "/proc", "procfs"),
    ("--registry-dir", "/var/lib/kubelet/plugins_registry", "where the kubelet looks for plugins"),
    ("--plugin-dir", None, "the plugin's directory (default: /var/lib/kubelet/plugins/<driver>)"),
    ("--cdi-dir", "/var/run/cdi", "where the container runtime looks for CDI files"),
    ("--host-cdi-dir", None, "the same as the container runtime sees it (default: the same)"),
    ("--runtime-socket", None, "the container runtime's socket (default: where containerd, CRI-O and k3s have it)"),
    ("--machine", None, "machine file, where the node's hardware is simulated"),
    ("--kubeconfig", None, "default: $KUBECONFIG, in a pod its own, ~/.kube/config"),
)


def add(subparsers: Any) -> None:
    """Add the subcommand to `argparse`'s subparsers."""
    sub = subparsers.add_parser(
        "doctor",
        help="look what keeps Lanewise from working",
        description="Look at this node and at the cluster, and say of each thing whether it is well, with the remedy where "
        "it is not. Exit code: 0 all is well, 1 a warning is the worst, 2 a failure is. On a node run it as root, or apply "
        "deploy/doctor-job.yaml.",
    )
    sub.add_argument("--only", choices=("node", "cluster"), help="leave the other half out")
    sub.add_argument(
        "--node-name",
        default=os.environ.get("NODE_NAME"),
        metavar="NAME",
        help="name of this node's Node object [$NODE_NAME]",
    )
    for flag, default, text in _PATHS:
        told = f"{text} (default {default})" if default else text
        sub.add_argument(flag, type=Path, default=Path(default) if default else None, metavar="PATH", help=told)
    sub.add_argument("--context", metavar="NAME", help="which of the kubeconfig's contexts (default: its current one)")
    sub.add_argument("--driver-name", default=GPU_DRIVER, metavar="NAME", help=f"default: {GPU_DRIVER}")
    sub.add_argument(
        "--system-namespace",
        default=os.environ.get("NAMESPACE") or NAMESPACE,
        metavar="NAME",
        help=f"where Lanewise is [$NAMESPACE, {NAMESPACE}]",
    )
    sub.add_argument("-o", "--output", choices=("table", "json"), default="table", help="json: see docs/operations.md")
    sub.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the diagnosis; the exit code is the worst finding's."""
    # It needs nearly everything that Lanewise consists of, which other subcommands should not wait for.
    from api import logs
    from cli.doctor import telling
    from cli.paper import Paper

    driver = checked_driver_name(arguments.driver_name, source="--driver-name")
    logs.configure("console", "error")
    findings = list(examine(arguments, driver, os.environ, utc_now()))
    if arguments.output == "json":
        print(json.dumps(telling.document(findings, arguments.node_name), indent=2))
    else:
        print(telling.text(findings, Paper.of(sys.stdout, os.environ)))
    return int(worst(findings))


def examine(
    arguments: argparse.Namespace, driver: str, environment: Mapping[str, str], now: datetime
) -> Iterator[Finding]:
    """All findings, the node's before the cluster's."""
    cluster, trouble = None, None
    try:
        cluster = _ask_cluster(arguments, driver, environment)
    except Refused as refused:
        reason = refused.reason
        trouble = failure("api server", f"it could not be asked: {reason.what}", reason.remedy)
    if arguments.only != "cluster":
        yield from _node(arguments, driver, cluster)
    if arguments.only != "node":
        if trouble is not None:
            yield trouble
        if cluster is not None:
            from cli.doctor import installation

            yield from installation.judge(cluster, now)


def _ask_cluster(arguments: argparse.Namespace, driver: str, environment: Mapping[str, str]) -> "Cluster | None":
    from api.kube import config
    from api.kube.client import Client
    from api.kube.errors import KubeError
    from api.version import VERSION
    from cli.doctor.cluster import ask

    if arguments.only == "node":
        return None
    server = config.load(arguments.kubeconfig, environment, context=arguments.context)
    with Client(server, user_agent=f"lanewise-doctor/{VERSION}") as client:
        try:
            return ask(client, driver=driver, namespace=arguments.system_namespace, node=arguments.node_name)
        except KubeError as error:
            raise Refused(error) from error


def _node(arguments: argparse.Namespace, driver: str, cluster: "Cluster | None") -> Iterator[Finding]:
    from cli.doctor import cdi, hardware, runtime, sockets
    from kubeletplugin.sockets.paths import PLUGINS_DIR

    root, proc = arguments.host_root, arguments.proc_root
    plugin_dir = arguments.plugin_dir or PLUGINS_DIR / driver
    if arguments.machine is not None:
        yield _simulated(arguments.machine, arguments.node_name or "")
    else:
        yield from hardware.judge(hardware.look(arguments.driver_root or root, root, arguments.sysfs_root, proc))
    yield from _seen("sockets", lambda: sockets.judge(sockets.look(driver, arguments.registry_dir, plugin_dir, proc)))
    yield from _seen("cdi directory", lambda: cdi.judge(cdi.look(driver, arguments.cdi_dir, plugin_dir, proc)))
    node = cluster.node_object if cluster is not None else None
    info = (node.get("status") or {}).get("nodeInfo") or {} if isinstance(node, Mapping) else {}
    said = str(info.get("containerRuntimeVersion") or "")
    host_cdi_dir = arguments.host_cdi_dir or arguments.cdi_dir
    yield from _seen("runtime", lambda: runtime.judge(runtime.look(root, arguments.runtime_socket, said), host_cdi_dir))


def _seen(check: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """What was found; or that this user may not look."""
    try:
        yield from look()
    except OSError as error:
        remedy = "run it as root on the node, or name the place by its flag"
        yield warning(check, f"not known: {error.filename}: {error.strerror}", remedy)


def _simulated(machine: Path, node: str) -> Finding:
    from kubeletplugin.discovery import machinefile

    try:
        found = machinefile.read(machine, node=node)
    except Refused as refused:
        return failure("hardware", refused.reason.what, refused.reason.remedy)
    return ok("hardware", f"simulated by {machine}: {plural(len(found.gpus), 'GPU')}")
