"""The program `lanewise-kubeletplugin`."""

import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence

import structlog

from api.kube.client import Client
from api.kube.config import load
from api.logs import configure
from api.probes import ProbeServer
from api.program import run
from api.refusals import Refused
from api.version import VERSION
from kubeletplugin.discovery.simulated import SimulatedSource
from kubeletplugin.plugin import Plugin
from kubeletplugin.settings import Settings, parse
from kubeletplugin.sockets.paths import socket_paths
from kubeletplugin.sockets.probe import probe

PROBE_FLAG = "--probe"
"""Ask a running plugin's sockets as the kubelet would, and exit: 0 when they answer."""
PROBE_SECONDS = 5.0
RESTART = 1
"""Exit code of a plugin that ends because only a new process helps: Kubernetes starts it anew."""

_log = structlog.get_logger(__name__)


def main() -> int:
    """Serve until SIGTERM or SIGINT, or until only a new process helps: exit code 1. Exit code 2 for input that cannot be
    used, said in one sentence."""
    return run(lambda: _main(sys.argv[1:], os.environ))


def _main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    asked = PROBE_FLAG in arguments
    settings = parse([argument for argument in arguments if argument != PROBE_FLAG], environment)
    return _probe(settings) if asked else _serve(settings, environment)


def _probe(settings: Settings) -> int:
    paths = socket_paths(settings.driver, settings.registry_dir, settings.plugin_dir, pod_uid=settings.pod_uid)
    reason = probe(paths.registration, PROBE_SECONDS)
    if reason is not None:
        raise Refused(reason)
    return 0


def _serve(settings: Settings, environment: Mapping[str, str]) -> int:
    configure(settings.log_format, settings.log_level)
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.set())
    if settings.machine is not None:
        # A file or root that cannot be used is said at once. One that breaks later is said in the inventory: pods use it.
        SimulatedSource(settings.machine, settings.machine_root, settings.node).discover()
    server = load(settings.kubeconfig, environment)
    with Client(server, user_agent=f"lanewise-kubeletplugin/{VERSION}", pool_size=8) as client:
        plugin = Plugin(settings, client, version=VERSION, ended=told)
        with ProbeServer(settings.probe_port, healthz=plugin.why_not_live, readyz=plugin.why_not_ready):
            plugin.start()
            _log.info("plugin started", version=VERSION, driver=settings.driver, pod_uid=settings.pod_uid)
            told.wait()
            plugin.stop()
    _log.info("plugin stopped", why=plugin.restart_wanted or "told to")
    return 0 if plugin.restart_wanted is None else RESTART


if __name__ == "__main__":
    sys.exit(main())
