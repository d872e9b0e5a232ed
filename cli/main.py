"""The `lanewise` command: finds the subcommand and hands over."""

import argparse
import sys
from collections.abc import Sequence

from api import program
from cli import demo, discover, machine, version
from cli.doctor import command as doctor
from cli.status import command as status

_SUBCOMMANDS = (demo, discover, doctor, machine, status, version)
"""Each module says its flags in `add(subparsers)` and names the function that runs it."""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="lanewise", description="A Kubernetes DRA driver that knows where each GPU sits."
    )
    subparsers = top.add_subparsers(metavar="COMMAND", required=True)
    for module in _SUBCOMMANDS:
        module.add(subparsers)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code. 2: something that was given cannot be used, and stderr says what."""
    chosen = parser().parse_args(sys.argv[1:] if arguments is None else arguments)
    return program.run(lambda: int(chosen.run(chosen)))


if __name__ == "__main__":
    sys.exit(main())
