"""The controller at work: watches, queue and workers, from winning the lead to losing it."""

import threading
import time
from collections.abc import Mapping

import structlog

from api.kube.client import Client
from api.kube.errors import KubeError
from api.kube.reflector import State as WatchState
from controller.queue import WorkQueue
from controller.reconcile import Observer, Reconciler
from controller.settings import Settings
from controller.state import State
from controller.watches import Watches

_log = structlog.get_logger(__name__)


class Controller:
    """One term of office: begins with nothing known, ends with nothing running. Start and stop once each."""

    def __init__(self, client: Client, settings: Settings, observer: Observer | None = None) -> None:
        self._queue: WorkQueue[str] = WorkQueue()
        self._state = State(self._queue.add)
        self._watches = Watches(client, self._state, driver=settings.driver, namespace=settings.namespace)
        self._reconciler = Reconciler(
            client, self._state, settings, listening=self._watches.listening, observer=observer
        )
        self._stopping = threading.Event()
        self._complained: dict[str, str] = {}
        self._threads = [
            threading.Thread(target=self._work, name=f"worker {number}", daemon=True)
            for number in range(settings.workers)
        ]

    def start(self) -> None:
        """Watch, and work as soon as everything was seen once: half a picture would look like things deleted."""
        self._watches.start()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Finish the passes under way and end all threads. What is published stays."""
        self._stopping.set()
        self._queue.close()
        self._watches.stop()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def wait_synced(self, timeout_seconds: float) -> bool:
        """Whether everything was seen once; each watch is waited for that long."""
        return self._watches.wait_synced(timeout_seconds)

    def why_not_ready(self) -> str | None:
        """What keeps it from working, None if nothing does."""
        return self._watches.why_not_synced()

    def why_not_live(self) -> str | None:
        """What only a restart mends, None if nothing does."""
        dead = [thread.name for thread in self._threads if thread.ident is not None and not thread.is_alive()]
        return f"{', '.join(dead)} ended" if dead and not self._stopping.is_set() else None

    def watched(self) -> Mapping[str, WatchState]:
        """How each watch is doing, by the plural of what it watches."""
        return self._watches.states()

    def silences(self) -> Mapping[str, float]:
        """Seconds since anything was heard of each node's plugin."""
        return self._state.silences()

    def _work(self) -> None:
        while not self.wait_synced(0.2):
            if self._stopping.is_set():
                return
        while (node := self._queue.take()) is not None:
            self._queue.done(node, retry=not self._pass(node))

    def _pass(self, node: str) -> bool:
        try:
            outcome = self._reconciler.reconcile(node)
        except KubeError as error:
            self._complain(node, error)
            return False
        except Exception:  # noqa: BLE001  # one node's surprise must not stop the others
            _log.exception("node not reconciled", node=node)
            return False
        if self._complained.pop(node, None):
            _log.info("node reconciled again", node=node)
        if outcome.look_again is not None:
            # Just after, so that the comparison is not decided by rounding.
            self._queue.add_at(node, max(outcome.look_again, time.monotonic()) + 0.01)
        return True

    def _complain(self, node: str, error: KubeError) -> None:
        """Say what does not work when it begins, not at every try."""
        if self._complained.get(node) != error.what:
            self._complained[node] = error.what
            _log.warning("node not reconciled", node=node, why=error.what, remedy=error.remedy)
