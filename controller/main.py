"""The program `lanewise-controller`."""

import os
import signal
import sys
import threading
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import structlog

from api import logs
from api.kube import config
from api.kube.client import Client
from api.kube.lease import LeaderElector, LeaseTiming
from api.program import run
from api.version import VERSION
from api.web import WebServer
from controller.run import Controller
from controller.settings import Settings, parse

if TYPE_CHECKING:
    from controller.metrics import Metrics

LEASE = "lanewise-controller"

_log = structlog.get_logger(__name__)


class Office:
    """Holds the controller while this process leads. Its methods are called by the elector's thread."""

    def __init__(self, client: Client, settings: Settings, metrics: "Metrics | None" = None) -> None:
        self._client = client
        self._settings = settings
        self._metrics = metrics
        self._controller: Controller | None = None

    def on_started(self) -> None:
        """Begin anew: what was known before another led is worth nothing."""
        self._controller = Controller(self._client, self._settings, self._metrics)
        if self._metrics is not None:
            self._metrics.begin(self._controller)
        self._controller.start()

    def on_stopped(self, why: str) -> None:
        """End, and return when nothing is written any more."""
        controller, self._controller = self._controller, None
        if controller is not None:
            controller.stop()
            if self._metrics is not None:
                self._metrics.end()
            _log.info("controller stopped working", why=why)

    def on_leader(self, identity: str) -> None:
        """Somebody leads."""
        _log.info("leader seen", leader=identity)

    def why_not_live(self) -> str | None:
        """A thread that is not there any more comes back only with a new process."""
        controller = self._controller
        return controller.why_not_live() if controller is not None else None

    def why_not_ready(self) -> str | None:
        """A candidate that waits is ready: it does all that it should."""
        controller = self._controller
        return controller.why_not_ready() if controller is not None else None


def serve(
    settings: Settings,
    client: Client,
    told: threading.Event,
    *,
    timing: LeaseTiming | None = None,
    metrics: "Metrics | None" = None,
) -> None:
    """Work until `told`: while leading, or always where nobody is asked who leads."""
    office = Office(client, settings, metrics)
    pages = {"/metrics": metrics.page} if metrics is not None else {}
    with WebServer(settings.http_port, healthz=office.why_not_live, readyz=office.why_not_ready, pages=pages):
        if settings.leader_election:
            elector = LeaderElector(
                client,
                namespace=settings.namespace,
                name=LEASE,
                identity=f"{settings.identity}_{uuid.uuid4().hex[:8]}",
                leading=office,
                timing=timing,
            )
            elector.start()
            told.wait()
            elector.stop()
        else:
            office.on_started()
            told.wait()
            office.on_stopped("told to")


def main() -> int:
    """Run until SIGTERM or SIGINT. Exit code 2 for input that cannot be used, said in one sentence."""
    return run(lambda: _main(sys.argv[1:], os.environ))


def _main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    settings = parse(arguments, environment)
    logs.configure(settings.log_format, settings.log_level)
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.set())
    server = config.load(settings.kubeconfig, environment)
    metrics = _metrics(settings)
    with Client(
        server,
        user_agent=f"lanewise-controller/{VERSION}",
        pool_size=settings.workers + 2,
        answered=metrics.requested if metrics else None,
    ) as client:
        _log.info("controller started", version=VERSION, driver=settings.driver)
        serve(settings, client, told, metrics=metrics)
    _log.info("controller stopped")
    return 0


def _metrics(settings: Settings) -> "Metrics | None":
    """None without a port to show them on."""
    if not settings.http_port:
        return None
    from controller.metrics import Metrics

    return Metrics()


if __name__ == "__main__":
    sys.exit(main())
