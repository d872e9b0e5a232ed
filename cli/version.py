"""`lanewise version`: which release this is."""

import argparse
from typing import Any

from api.version import VERSION


def add(subparsers: Any) -> None:
    """Add the subcommand to `argparse`'s subparsers."""
    sub = subparsers.add_parser("version", help="print the version")
    sub.set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    print(f"lanewise {VERSION}")
    return 0
