"""`lanewise machine check`: whether a machine file can be used, without using it."""

import argparse
from pathlib import Path
from typing import Any

from api.refusals import Reason, Refused, Several
from kubeletplugin.discovery import machinefile


def add(subparsers: Any) -> None:
    """Add the subcommand to `argparse`'s subparsers."""
    sub = subparsers.add_parser("machine", help="work with machine files")
    actions = sub.add_subparsers(metavar="ACTION", required=True)
    check = actions.add_parser(
        "check", help="check machine files", description="Say all that is wrong with machine files."
    )
    check.add_argument("files", nargs="+", type=Path, metavar="FILE")
    check.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check every file before refusing any. Refused with all that is wrong with all of them."""
    wrong: list[Reason] = []
    for path in arguments.files:
        try:
            machine = machinefile.read(path, node="check")
        except Refused as refused:
            reason = refused.reason
            wrong.extend(reason.reasons if isinstance(reason, Several) else [reason])
        else:
            print(f"{path}: {machine.name}; GPUs: {len(machine.gpus)}, NICs: {len(machine.nics)}")
    if wrong:
        raise Refused(Several(tuple(wrong)))
    return 0
