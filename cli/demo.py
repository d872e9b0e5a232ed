"""`lanewise demo`: the main job on a made-up machine, told step by step, with no cluster, no GPU and no root."""

import argparse
import importlib.util
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from api.kube.errors import KubeError
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
    from cli.sandbox.cluster import ClusterFailed, SandboxCluster
    from cli.story.tale import Tale
    from cli.story.teller import Teller
    from cli.story.view import NotAsTold

    teller = Teller(sys.stdout, os.environ)
    with _ended_by_signals() as signals:
        try:
            _introduce(teller, machine)
            with (
                SandboxCluster({NODE: machine}, said=teller.is_up, strangers=arguments.keep) as cluster,
                signals.unheard_after(),
            ):
                try:
                    Tale(cluster, teller).tell()
                except NotAsTold as wrong:
                    raise cluster.failed(str(wrong)) from wrong
                except KubeError as error:
                    raise cluster.failed(error.what) from error
                if arguments.keep:
                    _keep(teller, cluster)
        except ClusterFailed as failed:
            _confess(failed)
            return FAILED
        except _Ended as ended:
            print(f"\nended by {ended.signal.name}; nothing is left running", file=sys.stderr)
            return 128 + ended.signal
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


def _keep(teller: "Teller", cluster: "SandboxCluster") -> None:
    """Wait for Ctrl-C, with a word on what can be done meanwhile."""
    try:
        _say_what_can_be_done(teller, cluster)
        cluster.watch_over(threading.Event())
    except _Ended:
        teller.gap()


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


class _Ended(BaseException):
    """A signal told us to end. No Exception, so that nothing on the way takes it for a fault."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.signal = signal.Signals(number)


class _Signals:
    """Ctrl-C, SIGTERM and a closed terminal, as far as whoever started us lets us hear them."""

    def __init__(self) -> None:
        told = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self._before = {number: signal.getsignal(number) for number in told}
        self._numbers = [number for number in told if self._before[number] is not signal.SIG_IGN]

    def hear(self) -> None:
        """From now on the first of them raises _Ended, and the others are not heard."""
        for number in self._numbers:
            signal.signal(number, self._end)

    @contextmanager
    def unheard_after(self) -> Iterator[None]:
        """After this block none is heard any more: what was started is being ended already, and must not be cut off."""
        try:
            yield
        finally:
            self._ignore()

    def restore(self) -> None:
        """As it was before."""
        for number in self._numbers:
            signal.signal(number, self._before[number])

    def _end(self, number: int, _: object) -> None:
        self._ignore()
        raise _Ended(number)

    def _ignore(self) -> None:
        for number in self._numbers:
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def _ended_by_signals() -> Iterator[_Signals]:
    signals = _Signals()
    signals.hear()
    try:
        yield signals
    finally:
        signals.restore()
