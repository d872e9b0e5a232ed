"""`lanewise demo`: the main job on a made-up machine, told step by step, with no cluster, no GPU and no root."""

import argparse
import importlib.util
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from api.refusals import BadInput, Refused
from cli.shipped import shipped
from kubeletplugin.discovery import machinefile

if TYPE_CHECKING:
    from cli.sandbox.cluster import ClusterFailed, SandboxCluster
    from cli.story.teller import Teller

NODE = "node-a"
FAILED = 1
"""Exit code when something was not as the story says."""
_NEEDED = {"grpc": "node", "google.protobuf": "node", "cel_expr_python": "sandbox"}
"""Modules that Lanewise installs on request only, with the name of the extra."""


def add(subparsers: Any) -> None:
    """Add the subcommand to `argparse`'s subparsers."""
    sub = subparsers.add_parser(
        "demo",
        help="show on a made-up machine what Lanewise does",
        description="Start a small cluster on this computer, let pods ask for GPUs of a machine that a file describes, and "
        "take everything away again. Needs no root, no GPU and no network.",
    )
    sub.add_argument(
        "--machine", type=Path, metavar="FILE", help="machine file (default: examples/machines/hgx-h100.yaml)"
    )
    sub.add_argument("--keep", action="store_true", help="keep the cluster until Ctrl-C, for kubectl")
    sub.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Tell the story. Refused for a machine file, folder or part that cannot be used."""
    machine = arguments.machine or shipped("examples/machines/hgx-h100.yaml")
    machinefile.read(machine, node=NODE)
    _check_needed()
    # Costs most of a second, which other subcommands and a mistyped file should not wait for.
    from api.kube.errors import KubeError
    from cli.sandbox.cluster import ClusterFailed, SandboxCluster, ToldToEnd
    from cli.story.tale import Tale
    from cli.story.teller import Teller
    from cli.story.view import NotAsTold

    teller = Teller(sys.stdout, os.environ)
    _introduce(teller, machine)
    with _Signals() as signals:
        try:
            with SandboxCluster(
                {NODE: machine}, said=teller.is_up, ended=signals.came, strangers=arguments.keep
            ) as cluster:
                try:
                    Tale(cluster, teller).tell()
                except NotAsTold as wrong:
                    raise cluster.failed(str(wrong)) from wrong
                except KubeError as error:
                    raise cluster.failed(error.what) from error
                if arguments.keep:
                    _say_what_can_be_done(teller, cluster)
                    cluster.watch_over()
        except ClusterFailed as failed:
            _confess(failed)
            return FAILED
        except ToldToEnd:
            print(f"\nended by {signals.name}; nothing is left running", file=sys.stderr)
            return signals.exit_code
    teller.gap()
    teller.say("The cluster is gone, and with it all its files and processes.")
    return 0


def _introduce(teller: "Teller", machine: Path) -> None:
    teller.title(f"Lanewise on a made-up machine: {_short(machine)}")
    teller.gap()
    teller.say(
        "A small cluster starts on this computer, with one node that has the GPUs of that file. Pods will ask for them. API "
        "server, scheduler, claim controller and kubelet are stand-ins for Kubernetes' own, within this process; Lanewise's "
        "controller and node plugin are the real programs. No container runs."
    )
    teller.gap()


def _short(path: Path) -> Path:
    """As seen from where we are, where it lies below."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _say_what_can_be_done(teller: "Teller", cluster: "SandboxCluster") -> None:
    examples = shlex.quote(str(_short(shipped("examples/one-gpu"))))
    lanewise = Path(sys.executable).with_name("lanewise")
    status = shlex.quote(str(_short(lanewise))) if lanewise.exists() else f"{shlex.quote(sys.executable)} -m cli.main"
    teller.gap()
    teller.title("The cluster stays until Ctrl-C. In another terminal:")
    teller.show(
        [
            f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}",
            "kubectl get nodeinventories,resourceslices",
            f"kubectl apply -f {examples}",
            "kubectl get pods,resourceclaims,events",
            f"{status} status",
            f"ls {shlex.quote(str(cluster.nodes[NODE].folder.cdi_dir))}",
        ]
    )


def _confess(failed: "ClusterFailed") -> None:
    sys.stdout.flush()
    print(f"\nerror: {failed.what}", file=sys.stderr)
    for path, lines in failed.words.items():
        print(f"\nthe end of {path.name}:", file=sys.stderr)
        for line in lines:
            print(f"  {line}", file=sys.stderr)


def _check_needed() -> None:
    missing = {extra for module, extra in _NEEDED.items() if not _is_installed(module)}
    if missing:
        extras = ",".join(sorted(missing | {"node", "sandbox"}))
        problem = f"it needs what the extras {', '.join(sorted(missing))} of Lanewise bring"
        raise Refused(
            BadInput("lanewise demo", problem, f"pip install 'lanewise[{extras}]', or make demo in a checkout")
        )


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is not there
        return False


class _Signals:
    """Ctrl-C, SIGTERM and a closed terminal, as far as whoever started us lets us hear them: noted inside the block.

    Nothing is raised from a handler: that would leave a lock taken where it strikes, for instance in `Popen.poll`.
    """

    def __init__(self) -> None:
        told = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self._before = {number: signal.getsignal(number) for number in told}
        self._first: int | None = None

    def __enter__(self) -> Self:
        for number, before in self._before.items():
            if before is not signal.SIG_IGN:
                signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def came(self) -> bool:
        """Whether one of them has."""
        return self._first is not None

    @property
    def name(self) -> str:
        """Of the first."""
        return signal.Signals(self._first).name if self._first is not None else "nothing"

    @property
    def exit_code(self) -> int:
        """As a shell has it."""
        return 128 + (self._first or 0)

    def _note(self, number: int, _: object) -> None:
        if self._first is None:
            self._first = number
