"""A reflector under test: what its handler heard, how long it meant to wait, and a clock that only waits move."""

import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from api.kube.client import Client
from api.kube.reflector import Change, Reflector, Timing
from api.kube.server import Server
from tests.support.scripted_server import SECONDS, ScriptedServer

PATH = "/apis/test/v1/things"


class FakeTime:
    """Seconds that pass when somebody waits, and on request. After `limit` waits the next one lasts until the end."""

    def __init__(self, limit: int = 12) -> None:
        self.now = 1000.0
        self.limit = limit
        self.waits: list[float] = []
        self.changed = threading.Condition()

    def __call__(self) -> float:
        return self.now

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        with self.changed:
            self.waits.append(seconds)
            self.now += seconds
            self.changed.notify_all()
            over = len(self.waits) >= self.limit
        return stop.wait() if over else stop.is_set()

    def pass_seconds(self, seconds: float) -> Callable[[], None]:
        """For use as a part of a stream: so much time has gone by at this point."""

        def advance() -> None:
            self.now += seconds

        return advance

    def wait_for_waits(self, count: int) -> list[float]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.waits) >= count, SECONDS), f"waits: {self.waits}"
            return list(self.waits)


class Heard:
    """A handler that writes everything down, as (change, name of old, name of new)."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, str | None, str | None]] = []
        self.synced = 0
        self._changed = threading.Condition()

    def on_change(self, change: Change, old: Any, new: Any) -> None:
        with self._changed:
            self.changes.append((str(change), old, new))
            self._changed.notify_all()

    def on_synced(self) -> None:
        with self._changed:
            self.synced += 1
            self._changed.notify_all()

    def wait_for(self, count: int) -> list[tuple[str, str | None, str | None]]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.changes) >= count, SECONDS), f"heard: {self.changes}"
            return list(self.changes)


def value_of(item: dict[str, Any]) -> str:
    """What the tests keep of a thing: `name` or `name=value`."""
    name = item["metadata"]["name"]
    return f"{name}={item['value']}" if "value" in item else name


@contextmanager
def reflecting(
    server: ScriptedServer,
    *,
    handler: Any = None,
    timing: Timing | None = None,
    time: FakeTime | None = None,
    target: Server | None = None,
    **options: Any,
):
    """A started reflector on the server's things; gives reflector, handler and time."""
    time = time or FakeTime()
    handler = handler or Heard()
    options.setdefault("transform", value_of)
    target = target or Server(url=server.url)
    with Client(target, user_agent="test", timeout_seconds=SECONDS) as client:
        reflector = Reflector(
            client, PATH, handler=handler, timing=timing, clock=time, chance=lambda: 1.0, wait=time.wait, **options
        )
        reflector.start()
        try:
            yield reflector, handler, time
        finally:
            assert reflector.stop(), "the reflector did not end"
