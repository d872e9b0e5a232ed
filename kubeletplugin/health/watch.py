"""Looking at the GPUs' health again and again, in a thread that nobody ever waits for.

How to look is the probe's: `kubeletplugin.health.nvml`, or `simulated` for a machine file. What it means is `course`.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import structlog

from api.hardware import Gpu, Machine
from api.names import gpu_device_name
from api.refusals import Refused
from kubeletplugin.discovery.source import Source
from kubeletplugin.health.book import HealthBook
from kubeletplugin.health.course import Look
from kubeletplugin.health.turns import Turns

PERIOD_SECONDS = 10.0
STOP_SECONDS = 3.0
"""How long a stop waits for the thread. It leaves within a second; a call into a driver that hangs dies with the process."""
WELL_DIR = "well"
"""Below the state directory. A file here named after a device is an administrator's word that it is well."""

_log = structlog.get_logger(__name__)


class Bedside(Protocol):
    """What a probe needs while it has its turn."""

    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs to look at, with what ails them as far as known."""

    def looked(self, look: Look) -> None:
        """Take note of a look."""

    def leaving(self) -> bool:
        """Whether the turn is over: within a second, please."""

    def rest(self, seconds: float) -> None:
        """Wait, but no longer than until the turn is over."""


class Probe(Protocol):
    """A way to look at GPUs."""

    def attend(self, bedside: Bedside, period_seconds: float) -> None:
        """Look at once and then each period, and whenever something happens, until the turn is over.

        Raises Refused where there is nothing to look with.
        """


class AttendedSource:
    """A source of hardware whose machines have their ailments, and keep the GPUs that this boot has lost."""

    def __init__(self, source: Source, book: HealthBook, turns: Turns) -> None:
        self._source, self._book, self._turns = source, book, turns

    def discover(self) -> Machine:
        """See `Source.discover`."""
        with self._turns.of_discovery():
            found = self._source.discover()
        return self._book.machine(found)


class HealthWatch:
    """One thread with a probe. `start` and `stop` belong to one thread, the rest to any."""

    def __init__(
        self,
        probe: Probe,
        book: HealthBook,
        turns: Turns,
        *,
        state_dir: Path,
        changed: Callable[[], None],
        looked: Callable[[], None] = lambda: None,
        period_seconds: float = PERIOD_SECONDS,
    ) -> None:
        """`changed` is called from the thread when a GPU's ailments did, `looked` after the first look at each GPU and when the
        look before was long ago: what was unknown is known. Neither may block."""
        self._probe, self._book, self._turns = probe, book, turns
        self._well = state_dir / WELL_DIR
        self._changed, self._looked, self._period = changed, looked, period_seconds
        self._unwell = ""
        self._thread = threading.Thread(target=self._run, name="health", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End, and do not wait for a driver that hangs."""
        self._turns.end()
        if self._thread.ident is not None:
            self._thread.join(STOP_SECONDS)
            if self._thread.is_alive():
                _log.warning("health watch left behind", why="a call into the GPU driver does not return")

    def poke(self) -> None:
        """There are other GPUs: look now."""
        self._turns.poke()

    # For the probe.

    def gpus(self) -> tuple[Gpu, ...]:
        return self._book.gpus()

    def looked(self, look: Look) -> None:
        """What administrators declare counts with the look at which it was found."""
        declared = self._declared()
        look = Look(look.at, look.readings, look.driver_load, look.xids, frozenset(declared))
        before = {uuid: self._book.verdict(uuid).healthy for uuid in look.readings}
        if self._book.looked(look):
            self._changed()
        elif before != {uuid: self._book.verdict(uuid).healthy for uuid in look.readings}:
            self._looked()
        for path in declared.values():
            path.unlink(missing_ok=True)

    def leaving(self) -> bool:
        return self._turns.leaving()

    def rest(self, seconds: float) -> None:
        self._turns.rest(seconds)

    def _run(self) -> None:
        while not self._turns.ended():
            if not self._book.gpus():
                self._turns.rest(self._period)
                continue
            try:
                with self._turns.of_the_watch():
                    if not self._turns.leaving():
                        self._probe.attend(self, self._period)
            except Refused as refused:
                self._say(refused.reason.what, refused.reason.remedy)
                self._turns.rest(self._period)
            except Exception:  # noqa: BLE001  # logged with its traceback; nothing may end the only thread that looks
                _log.exception("look at the GPUs' health broke off")
                self._turns.rest(self._period)
            else:
                self._unwell = ""

    def _say(self, why: str, remedy: str) -> None:
        if why != self._unwell:
            _log.warning("GPUs' health not known", why=why, remedy=remedy)
        self._unwell = why

    def _declared(self) -> dict[str, Path]:
        """UUIDs of GPUs that somebody says are well, with the file that says it."""
        try:
            names = {path.name for path in self._well.iterdir()}
        except OSError:
            return {}
        named = {gpu.uuid: gpu_device_name(gpu.place.address) for gpu in self._book.gpus()}
        return {uuid: self._well / name for uuid, name in named.items() if name in names}
