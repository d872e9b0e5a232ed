"""The loop of a stand-in that acts on the whole cluster: one pass at a time, whenever something changed.

What a pass decides on it reads from the API server, so that it never acts on an old copy; the watches only say when.
"""

import threading
from collections.abc import Callable, Iterable

import structlog

from api.kube.backoff import Backoff
from api.kube.client import Client
from api.kube.errors import Closed, KubeError
from api.kube.paths import Resource
from api.kube.reflector import Change, Reflector
from api.kube.watch import Object

_log = structlog.get_logger(__name__)

SYNC_SECONDS = 10.0


class Passes:
    """Calls `work` in a thread of its own, between `start` and `stop`: at first, and after each change of `resources`."""

    def __init__(
        self, name: str, client: Client, resources: Iterable[Resource], work: Callable[[Client], None]
    ) -> None:
        """`work` gets a client of this loop's own. What it raises is logged, and it is called again after a while."""
        self._name = name
        self._client = client.sibling()
        self._work = work
        self._reflectors = {
            path: Reflector(client, path, handler=_Wakes(self.wake), transform=_version_of)
            for path in (resource.path() for resource in resources)
        }
        self._backoff = Backoff()
        self._changed = threading.Condition()
        self._due = True
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; KubeError where the first lists cannot be had."""
        for reflector in self._reflectors.values():
            reflector.start()
        for path, reflector in self._reflectors.items():
            if not reflector.wait_synced(SYNC_SECONDS):
                # A list of our own says what is the matter.
                self._client.list_pages(path)
        self._thread.start()

    def stop(self) -> None:
        """End all threads; may be repeated."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for reflector in self._reflectors.values():
            reflector.stop()
        self._client.close()
        if self._thread.ident is not None:
            self._thread.join(5.0)

    def wake(self) -> None:
        """Ask for another pass."""
        with self._changed:
            self._due = True
            self._changed.notify_all()

    def _run(self) -> None:
        delay: float | None = None
        while self._wait(delay):
            delay = None
            try:
                self._work(self._client)
            except Closed:
                return
            except KubeError as error:
                delay = self._backoff.delay_seconds()
                _log.warning("pass interrupted", by=self._name, why=error.what, remedy=error.remedy)
            except Exception:  # noqa: BLE001  # the edge of a pass: a thread that dies leaves the cluster standing still
                delay = self._backoff.delay_seconds()
                _log.exception("pass failed", by=self._name)

    def _wait(self, delay: float | None) -> bool:
        """Until there is something to do (True) or the loop is over (False)."""
        with self._changed:
            if delay is None:
                self._changed.wait_for(lambda: self._stopping or self._due)
            else:  # after a failure nothing but time counts: changes would turn it into a hot loop
                self._changed.wait_for(lambda: self._stopping, delay)
            self._due = False
            return not self._stopping


class _Wakes:
    """A handler for which it matters only that something changed."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def on_change(self, change: Change, old: str | None, new: str | None) -> None:  # noqa: ARG002  # the protocol's
        self._wake()

    def on_synced(self) -> None:
        self._wake()


def _version_of(obj: Object) -> str:
    return f"{obj['metadata']['uid']}/{obj['metadata']['resourceVersion']}"
