"""When the hardware is looked at again.

What triggers a look: the start; a timer (60 s); `poke`, which `kubeletplugin.discovery.uevents` calls when the kernel tells
of PCI devices or of NVIDIA's driver. While there is nothing to say yet (no driver, no GPU where sysfs shows some), or a GPU
is still to come, the waits are 1 s doubling to 60 s instead. NVML's own events (Xid, a GPU lost) are no trigger: they tell of
health, and come with it.
"""

import threading
from collections.abc import Callable

import structlog

from api.hardware import LeftOut, Machine
from api.refusals import Reason, Refused
from kubeletplugin.discovery.source import Source, is_awaited

PERIOD_SECONDS = 60.0
FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 60.0

_log = structlog.get_logger(__name__)


class Discovery:
    """The node's hardware, kept current by one thread.

    A machine once found stays `current` while its driver is away (an upgrade): pods that run are not touched by it, and
    `why` says what is the matter.
    """

    def __init__(
        self,
        source: Source,
        on_change: Callable[[Machine], None],
        *,
        on_trouble: Callable[[Reason | None], None] = lambda _: None,
        period_seconds: float = PERIOD_SECONDS,
    ) -> None:
        """`on_change` gets each machine that differs from the last, `on_trouble` each reason that does, None when it is
        over; both are called in the thread that looks, the one at a time."""
        self._source, self._on_change, self._on_trouble = source, on_change, on_trouble
        self._period = period_seconds
        self._current: Machine | None = None
        self._why: Reason | None = None
        self._fruitless = 0
        self._poked = False
        self._stopping = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="discovery", daemon=True)

    @property
    def current(self) -> Machine | None:
        """The last machine found; None before the first."""
        return self._current

    @property
    def why(self) -> Reason | None:
        """Why the last look found nothing; None when it found a machine, or before the first."""
        return self._why

    def start(self) -> None:
        """Look now, and from now on."""
        self._thread.start()

    def stop(self) -> None:
        """End; returns when no callback runs any more. A look that is under way ends first."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def poke(self) -> None:
        """Something happened: look soon, and be patient anew."""
        with self._wake:
            self._poked = True
            self._wake.notify()

    def look(self) -> float:
        """Look once, and tell whoever listens; the seconds until the next look. For the thread, and for tests."""
        try:
            machine = self._source.discover()
        except Refused as refused:
            self._trouble(refused.reason)
            return self._patience()
        self._trouble(None)
        if machine != self._current:
            _log.info("hardware found", gpus=len(machine.gpus), nics=len(machine.nics), boot_id=machine.boot_id)
            self._say_left_out(machine)
            previous, self._current = self._current, machine
            try:
                self._on_change(machine)
            except BaseException:
                self._current = previous  # not told, so to be told at the next look
                raise
        if any(is_awaited(item) for item in machine.left_out):
            return min(self._patience(), self._period)
        self._fruitless = 0
        return self._period

    def _run(self) -> None:
        while True:
            with self._wake:
                if self._stopping:
                    return
                if self._poked:
                    self._poked, self._fruitless = False, 0
            wait = self._look_safely()
            with self._wake:
                if not (self._poked or self._stopping):
                    self._wake.wait(wait)

    def _look_safely(self) -> float:
        try:
            return self.look()
        except Exception:  # noqa: BLE001  # logged with its traceback
            # The thread is the only one that will ever see a repaired machine, so nothing may end it.
            _log.exception("look at the hardware broke off")
            return self._patience()

    def _patience(self) -> float:
        wait = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** min(self._fruitless, 30))
        self._fruitless += 1
        return wait

    def _trouble(self, reason: Reason | None) -> None:
        if reason == self._why:
            return
        if reason is not None:
            _log.warning("hardware not found", why=reason.what, remedy=reason.remedy)
        self._why = reason
        self._on_trouble(reason)

    def _say_left_out(self, machine: Machine) -> None:
        known: frozenset[LeftOut] = frozenset(self._current.left_out if self._current else ())
        for item in machine.left_out:
            if item not in known:
                _log.warning("device left out", device=item.what, why=item.why)
