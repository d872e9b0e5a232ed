"""When the kubelet deletes ResourceSlices: all of its node when it starts, a driver's when that was away for 30 s.

Source: pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go, sync and wipeResourceSlices. One wipe for each event, no standing
rule: slices that are written while the driver stays away are left alone.
"""

import threading
from dataclasses import dataclass, field

import structlog

from api.kube.client import Client
from api.kube.errors import Closed, KubeError, NotFound
from api.kube.paths import NODES, SLICES

_log = structlog.get_logger(__name__)

WIPE_SECONDS = 30.0
FIRST_SECONDS, LIMIT_SECONDS = 1.0, 300.0


@dataclass(slots=True)
class PendingWipes:
    """Which drivers are away, and when their slices go."""

    seconds: float = WIPE_SECONDS
    _at: dict[str, float] = field(default_factory=dict)

    def note(self, driver: str, *, usable: bool, now: float) -> None:
        """Something happened to one of the driver's plugins. Back before its time, it is spared; the time runs once only."""
        if usable:
            self._at.pop(driver, None)
        else:
            self._at.setdefault(driver, now + self.seconds)

    def due(self, now: float) -> list[str]:
        """The drivers whose time has come; each is told once."""
        over = [driver for driver, at in self._at.items() if at <= now]
        for driver in over:
            del self._at[driver]
        return over


class SliceWiper:
    """Deletes slices in threads of its own, and tries until it succeeds or is stopped."""

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._node = node
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def wipe(self, driver: str = "") -> None:
        """Begin to delete the node's slices, of one driver or of all. Once begun, the driver's return does not end it."""
        if self._stopping.is_set():
            return
        thread = threading.Thread(target=self._run, args=(driver,), name="kubelet-wipe", daemon=True)
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()

    def stop(self) -> None:
        """End; its client has to be closed before, which ends calls under way."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(5.0)

    def _run(self, driver: str) -> None:
        selector = f"spec.driver={driver},spec.nodeName={self._node}" if driver else f"spec.nodeName={self._node}"
        wait = FIRST_SECONDS
        while not self._stopping.is_set():
            try:
                self._client.get(NODES.path(name=self._node))
                self._client.delete_collection(SLICES.path(), {"fieldSelector": selector})
            except Closed:
                return
            except KubeError as error:
                if not isinstance(error, NotFound):
                    _log.warning("slices could not be deleted", selector=selector, why=error.what)
                self._stopping.wait(wait)
                wait = min(wait * 2, LIMIT_SECONDS)
            else:
                _log.info("slices deleted", selector=selector)
                return
