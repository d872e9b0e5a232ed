"""Builds, starts, shows and forgets the cluster to play with: `python -m tests.cluster build|up|status|down|demo`."""

import argparse
import sys
from pathlib import Path

from tests.cluster.build import build
from tests.cluster.cluster import Cluster, require_root, running
from tests.cluster.ending import wipe
from tests.cluster.places import ClusterError, playground


def up(machine: Path | None) -> None:
    """Starts the cluster, with Lanewise on the simulated `machine` if one is given, and says how to use it."""
    require_root()  # before the minutes of a build
    cluster = Cluster(build(), playground())
    cluster.start()
    if machine is not None:
        from tests.cluster.lanewise import install

        install(cluster, machine)
    print(f"the cluster runs in {cluster.dir}; to use it:")
    print(f"  export KUBECONFIG={cluster.admin_kubeconfig} PATH={cluster.kubectl_path.parent}:$PATH")
    print("  kubectl get nodes")


def down() -> None:
    """Ends the cluster and forgets it."""
    wipe(playground())


def status() -> None:
    """Says which of the cluster's programs run."""
    if not playground().exists():
        raise ClusterError(f"there is no cluster in {playground()}; start one with: python -m tests.cluster up")
    for name, runs in running(playground()).items():
        print(f"{name:24} {'runs' if runs else 'stopped'}")


def main(arguments: list[str]) -> int:
    """Runs one command; 2 when what it needs is missing, with one sentence about it."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build the programs, if they are not there yet")
    upper = commands.add_parser("up", help="start the cluster")
    upper.add_argument("--machine", type=Path, metavar="FILE", help="install Lanewise on this simulated machine")
    shower = commands.add_parser("demo", help="show the main job on a cluster of its own, and leave nothing behind")
    shower.add_argument("--machine", type=Path, metavar="FILE", required=True, help="simulate this machine")
    commands.add_parser("status", help="say what runs")
    commands.add_parser("down", help="end the cluster and forget it")
    chosen = parser.parse_args(arguments)
    try:
        match chosen.command:
            case "build":
                print(f"the cluster's programs are in {build().built}")
            case "up":
                up(chosen.machine)
            case "demo":
                from tests.cluster.demo import demo

                demo(chosen.machine)
            case "status":
                status()
            case "down":
                down()
    except ClusterError as error:
        print(f"tests.cluster: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
