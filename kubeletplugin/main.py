"""The program `lanewise-kubeletplugin`."""

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import structlog

from api.logs import configure
from api.program import run
from api.refusals import Refused
from api.version import VERSION
from kubeletplugin.settings import Settings, parse
from kubeletplugin.sockets.paths import socket_paths

if TYPE_CHECKING:
    from kubeletplugin.metrics import Metrics

PROBE_FLAG = "--probe"
"""Ask a running plugin's sockets as the kubelet would, and exit: 0 when they answer."""
PROBE_SECONDS = 5.0
PORT_SECONDS = 5.0
"""How often to ask for a port that is taken: in an update the new pod starts while the old one still has it, and both are on
the host's network. Nothing waits for it."""
CONNECTIONS = 16
"""To the API server, kept once they were needed: one for each pod that starts at the same moment, and the plugin's own."""
RESTART = 1
"""Exit code of a plugin that ends because only a new process helps: Kubernetes starts it anew."""

_log = structlog.get_logger(__name__)


def main() -> int:
    """Serve until SIGTERM or SIGINT, or until only a new process helps: exit code 1. Exit code 2 for input that cannot be
    used, said in one sentence."""
    # All that was imported by then stays: a collection that looks at it again keeps every call waiting for 10 ms and more.
    return run(lambda: _main(sys.argv[1:], os.environ, settled=gc.freeze))


def _main(
    arguments: Sequence[str], environment: Mapping[str, str], *, settled: Callable[[], None] = lambda: None
) -> int:
    """`settled` is called when all that lasts has been made, before the first call is answered."""
    asked = PROBE_FLAG in arguments
    settings = parse([argument for argument in arguments if argument != PROBE_FLAG], environment)
    return _probe(settings) if asked else _serve(settings, environment, settled)


def _probe(settings: Settings) -> int:
    from kubeletplugin.sockets.probe import probe

    paths = socket_paths(settings.driver, settings.registry_dir, settings.plugin_dir, pod_uid=settings.pod_uid)
    reason = probe(paths.registration, PROBE_SECONDS)
    if reason is not None:
        raise Refused(reason)
    return 0


def _serve(settings: Settings, environment: Mapping[str, str], settled: Callable[[], None]) -> int:
    # Not above: a probe is a process of its own, several times a minute, and needs none of it.
    from api.kube.client import Client
    from api.kube.config import load
    from api.web import WebServer
    from kubeletplugin.plugin import Plugin

    configure(settings.log_format, settings.log_level)
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.set())
    if settings.machine is not None:
        # A file or root that cannot be used is said at once. One that breaks later is said in the inventory: pods use it.
        from kubeletplugin.discovery.simulated import SimulatedSource

        SimulatedSource(settings.machine, settings.machine_root, settings.node, nodes=settings.machine_nodes).discover()
    server = load(settings.kubeconfig, environment)
    metrics = _metrics(settings)
    agent = f"lanewise-kubeletplugin/{VERSION}"
    with Client(
        server, user_agent=agent, pool_size=CONNECTIONS, answered=metrics.requested if metrics else None
    ) as client:
        plugin = Plugin(settings, client, version=VERSION, ended=told, done=metrics.done if metrics else None)
        if metrics is not None:
            metrics.watch(plugin.seen)
        with WebServer(
            settings.http_port,
            healthz=plugin.why_not_live,
            readyz=plugin.why_not_ready,
            pages={"/metrics": metrics.page} if metrics is not None else {},
            retry_seconds=PORT_SECONDS,
        ):
            settled()
            plugin.start()
            _log.info("plugin started", version=VERSION, driver=settings.driver, pod_uid=settings.pod_uid)
            told.wait()
            plugin.stop()
    _log.info("plugin stopped", why=plugin.restart_wanted or "told to")
    return 0 if plugin.restart_wanted is None else RESTART


def _metrics(settings: Settings) -> "Metrics | None":
    """None without a port to show them on: a node does not pay for what nobody can see (api.metrics says how much)."""
    if not settings.http_port:
        return None
    from kubeletplugin.metrics import Metrics

    return Metrics(settings.node)


if __name__ == "__main__":
    sys.exit(main())
