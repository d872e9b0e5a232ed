"""`lanewise status`: which GPUs a cluster has, who holds each of them, and what is the matter with the others."""

import argparse
import json
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from api.names import GPU_DRIVER, NAMESPACE, checked_driver_name
from api.refusals import BadInput, Refused
from api.timestamps import utc_now
from cli.status.report import Report, Scope

if TYPE_CHECKING:
    from api.kube.server import Server

_CLEAR = "\x1b[H\x1b[2J\x1b[3J"
NOT_FOUND = 1
"""Exit code when the node that was asked for has nothing of ours."""


def add(subparsers: Any) -> None:
    """Add the subcommand to `argparse`'s subparsers."""
    sub = subparsers.add_parser(
        "status",
        help="show who holds which GPU",
        description="Show each node's GPUs as the cluster has them: what is published, which pod, container and claim has "
        "which device, what is free, tainted or left out and why, and what waits. Needs the rights of the ClusterRole "
        "lanewise-viewer.",
    )
    sub.add_argument("--node", metavar="NAME", help="only this node")
    sub.add_argument("--pod", metavar="[NAMESPACE/]NAME", help="only what this pod has or waits for")
    sub.add_argument(
        "-n",
        "--namespace",
        metavar="NAME",
        help="only what this namespace's pods and claims have or wait for; asks for pods and claims of this namespace only",
    )
    sub.add_argument("--watch", action="store_true", help="show it anew whenever it changes, until Ctrl-C")
    sub.add_argument("-o", "--output", choices=("table", "json"), default="table", help="json: see docs/operations.md")
    sub.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="default: $KUBECONFIG, in a pod its own, ~/.kube/config"
    )
    sub.add_argument("--context", metavar="NAME", help="which of the kubeconfig's contexts (default: its current one)")
    sub.add_argument("--driver-name", default=GPU_DRIVER, metavar="NAME", help=f"default: {GPU_DRIVER}")
    sub.add_argument("--system-namespace", default=NAMESPACE, metavar="NAME", help=f"where Lanewise is ({NAMESPACE})")
    sub.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the status. Refused when the API server cannot be asked; NOT_FOUND for a node that has nothing of ours."""
    # urllib3 and ssl cost a tenth of a second that other subcommands should not wait for.
    from api import logs
    from api.kube import config
    from api.kube.client import Client
    from api.version import VERSION
    from cli.status.asking import Asked, ask, follow

    driver = checked_driver_name(arguments.driver_name, source="--driver-name")
    server = config.load(arguments.kubeconfig, os.environ, context=arguments.context)
    asked = Asked(driver, arguments.system_namespace, _scope(arguments, server))
    logs.configure("console", "error")
    with Client(server, user_agent=f"lanewise-status/{VERSION}") as client:
        if arguments.watch:
            screen = _Screen(arguments.output)
            follow(client, asked, screen.draw, threading.Event(), utc_now)
            return 0
        report = ask(client, asked, utc_now)
    print(_shown(report, arguments.output))
    return NOT_FOUND if arguments.node is not None and not report.nodes else 0


def _scope(arguments: argparse.Namespace, server: "Server") -> Scope:
    namespace = arguments.namespace
    if arguments.pod is None:
        return Scope(arguments.node, namespace)
    before, slash, name = arguments.pod.rpartition("/")
    if slash and namespace not in (None, before):
        raise Refused(BadInput("--pod", f"{arguments.pod!r} is not in namespace {namespace}", "leave -n out"))
    if not name or "/" in before or (slash and not before):
        raise Refused(
            BadInput("--pod", f"{arguments.pod!r} is no pod", "write NAMESPACE/NAME, or NAME and -n NAMESPACE")
        )
    return Scope(arguments.node, before or namespace or server.namespace, name)


def _shown(report: Report, output: str, *, indent: int | None = 2) -> str:
    if output == "json":
        from cli.status.document import document

        return json.dumps(document(report), indent=indent)
    from cli.paper import Paper
    from cli.status.text import text

    return text(report, Paper.of(sys.stdout, os.environ))


class _Screen:
    """Where a status is drawn again and again: over itself in a terminal, one below the other anywhere else."""

    def __init__(self, output: str) -> None:
        self._output = output

    def draw(self, report: Report, troubles: tuple[str, ...]) -> None:
        """JSON gives one document a line. What is not up to date is said below, or on stderr beside JSON."""
        shown = _shown(report, self._output, indent=None)
        if self._output == "json":
            for trouble in troubles:
                print(trouble, file=sys.stderr)
        else:
            shown = "\n".join((f"{_CLEAR}{shown}" if sys.stdout.isatty() else f"{shown}\n", *troubles))
        print(shown, flush=True)
