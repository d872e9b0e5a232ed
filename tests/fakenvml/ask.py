"""Asks a real pynvml, in a process of its own: what NvmlSource finds, and what NvmlProbe sees.

    python -m tests.fakenvml.ask DRIVER_ROOT SYSFS_ROOT PROC_ROOT

Each line of JSON on standard input names a question, each on standard output is its answer. A process keeps the NVML that it
has loaded, and one of its own is not loaded by the tests' process.
"""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from time import monotonic
from typing import Any

import structlog

from api.hardware import Gpu, Machine
from api.inventory import Owner, encode_spec
from api.refusals import Refused
from kubeletplugin.discovery.nvml import NvmlSource
from kubeletplugin.health.course import Look
from kubeletplugin.health.nvml import NvmlProbe


class Looks:
    """A bedside that is left after so many looks."""

    def __init__(self, gpus: tuple[Gpu, ...], count: int) -> None:
        self._gpus, self._left = gpus, count
        self.looks: list[Look] = []

    def gpus(self) -> tuple[Gpu, ...]:
        return self._gpus

    def looked(self, look: Look) -> None:
        self.looks.append(look)
        self._left -= 1

    def leaving(self) -> bool:
        return self._left <= 0

    def rest(self, seconds: float) -> None:
        """Nobody ends a turn from outside here."""
        raise AssertionError("the probe rests where it should hear of Xids")


class Asked:
    def __init__(self, driver_root: Path, sysfs_root: Path, proc_root: Path) -> None:
        self._source = NvmlSource(driver_root, sysfs_root, proc_root)
        self._sysfs = sysfs_root
        self._machine = Machine()

    def discover(self) -> dict[str, Any]:
        self._machine = self._source.discover()
        return encode_spec(Owner("node-a", "uid"), replace(self._machine, simulated=True))["spec"]

    def look(self, count: int = 1) -> list[dict[str, Any]]:
        """The readings of so many looks by UUID, and the Xids told meanwhile; a second look begins with the first Xid."""
        bedside = Looks(self._machine.gpus, count)
        probe = NvmlProbe(self._source, self._sysfs, watch_xids=count > 1, clock=monotonic)
        probe.attend(bedside, period_seconds=60)
        return [
            {"readings": {k: asdict(v) for k, v in look.readings.items()}, "xids": look.xids} for look in bedside.looks
        ]

    def call(self, name: str, *arguments: Any) -> str:
        """What a function of pynvml answers, or its error."""
        import pynvml

        with self._source.opened():
            try:
                return repr(getattr(pynvml, name)(*arguments))
            except pynvml.NVMLError as error:
                return type(error).__name__


def main() -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # answers have standard output
    asked = Asked(*map(Path, sys.argv[1:4]))
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            answer = {"answer": getattr(asked, name)(*arguments)}
        except Refused as refused:
            answer = {"refused": type(refused.reason).__name__, "what": refused.reason.what}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
