"""A stand-in for the kubelet's side of the sockets.

It does what the kubelet of 1.37 does with a DRA plugin (pkg/kubelet/cm/dra, pluginmanager), on the caller's command instead of
by itself: `scan` is one turn of its reconcile loop. Deadlines are the kubelet's own.
"""

import queue
import stat
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import grpc

from proto.dra.v1 import dra_pb2 as dra_v1
from proto.dra.v1beta1 import dra_pb2 as dra_v1beta1
from proto.health.v1 import health_pb2 as health_v1
from proto.health.v1alpha1 import health_pb2 as health_v1alpha1
from proto.registration import registration_pb2

GET_INFO_SECONDS = 1.0
NOTIFY_SECONDS = 5.0
CALL_SECONDS = 45.0

DRA = {"v1": dra_v1, "v1beta1": dra_v1beta1}
HEALTH = {"v1": health_v1, "v1alpha1": health_v1alpha1}

OPTIONS = (("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1))


class NotRegistered(Exception):  # noqa: N818  # an outcome, named as the kubelet logs it
    """The plugin could not be registered; it was told so where that was possible."""


@dataclass
class HealthStream:
    """An open NodeWatchResources call, read by a thread of its own."""

    call: Any
    reports: "queue.Queue[Any]" = field(default_factory=queue.Queue)
    ended: threading.Event = field(default_factory=threading.Event)
    error: grpc.RpcError | None = None
    """Why it ended; None when the plugin ended it in order, or it is open."""

    def __post_init__(self):
        self._reader = threading.Thread(target=self._read, name="kubelet-health", daemon=True)
        self._reader.start()

    def report(self, timeout: float = 5.0) -> Any:
        """The next message; queue.Empty when none comes in time."""
        return self.reports.get(timeout=timeout)

    def close(self) -> None:
        self.call.cancel()
        self._reader.join(timeout=5)

    def _read(self) -> None:
        try:
            for report in self.call:
                self.reports.put(report)
        except grpc.RpcError as error:
            self.error = error
        finally:
            self.ended.set()


@dataclass
class Plugin:
    """A registered plugin instance: one connection for everything but the registration."""

    socket: Path
    driver: str
    endpoint: str
    supported_versions: tuple[str, ...]
    pb: ModuleType
    channel: grpc.Channel
    stream: HealthStream | None = None

    def prepare(self, claims: Iterable[tuple[str, str, str]], timeout: float = CALL_SECONDS) -> Any:
        """NodePrepareResources for (namespace, name, uid)s: the reply of the version spoken."""
        return self.prepare_call(claims, timeout).result()

    def prepare_call(self, claims: Iterable[tuple[str, str, str]], timeout: float = CALL_SECONDS) -> Any:
        """The same as a future, to be cancelled or waited for."""
        return self._call("Prepare").future(self._request("Prepare", claims), timeout=timeout)

    def unprepare(self, claims: Iterable[tuple[str, str, str]], timeout: float = CALL_SECONDS) -> Any:
        return self._call("Unprepare")(self._request("Unprepare", claims), timeout=timeout)

    def open_health(self, version: str) -> HealthStream:
        """Open one more health stream, whatever the plugin advertises. The caller closes it."""
        pb = HEALTH[version]
        watch = self.channel.unary_stream(
            f"/{version}.DRAResourceHealth/NodeWatchResources",
            pb.NodeWatchResourcesRequest.SerializeToString,
            pb.NodeWatchResourcesResponse.FromString,
        )
        return HealthStream(watch(pb.NodeWatchResourcesRequest()))

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()
        self.channel.close()

    def _request(self, verb: str, claims: Iterable[tuple[str, str, str]]) -> Any:
        wire = [self.pb.Claim(namespace=namespace, name=name, uid=uid) for namespace, name, uid in claims]
        return getattr(self.pb, f"Node{verb}ResourcesRequest")(claims=wire)

    def _call(self, verb: str) -> Any:
        return self.channel.unary_unary(
            f"/{self.pb.DESCRIPTOR.package}.DRAPlugin/Node{verb}Resources",
            getattr(self.pb, f"Node{verb}ResourcesRequest").SerializeToString,
            getattr(self.pb, f"Node{verb}ResourcesResponse").FromString,
        )


class Kubelet:
    """Knows the plugins of one registry directory. A context manager; not for several threads at once.

    `dra_versions` and `health_versions` are what this kubelet speaks; without health versions it is one that opens no stream.
    """

    def __init__(
        self,
        registry: Path,
        *,
        dra_versions: tuple[str, ...] = ("v1", "v1beta1"),
        health_versions: tuple[str, ...] = ("v1", "v1alpha1"),
    ) -> None:
        self.registry = registry
        self.dra_versions = dra_versions
        self.health_versions = health_versions
        self.plugins: dict[Path, Plugin] = {}
        """By registration socket, in order of registration."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def sockets(self) -> list[Path]:
        """What it takes for registration sockets: sockets whose names have no leading dot, in any depth."""
        found = (path for path in self.registry.rglob("*") if not path.name.startswith("."))
        return sorted(path for path in found if stat.S_ISSOCK(path.lstat().st_mode))

    def scan(self) -> list[Plugin]:
        """One turn of the reconcile loop: forget the plugins whose sockets are gone, then register new ones.

        What was registered in this turn. NotRegistered when one of them could not be; ask again for the others.
        """
        there = self.sockets()
        for path in [path for path in self.plugins if path not in there]:
            self.forget(path)
        return [self.register(path) for path in there if path not in self.plugins]

    def register(self, path: Path) -> Plugin:
        """GetInfo, connect, open the health stream, notify: in the kubelet's order."""
        if path in self.plugins:
            self.forget(path)
        with grpc.insecure_channel(f"unix://{path}", options=OPTIONS) as channel:
            pb = registration_pb2
            get_info = channel.unary_unary(
                "/pluginregistration.Registration/GetInfo", pb.InfoRequest.SerializeToString, pb.PluginInfo.FromString
            )
            notify = channel.unary_unary(
                "/pluginregistration.Registration/NotifyRegistrationStatus",
                pb.RegistrationStatus.SerializeToString,
                pb.RegistrationStatusResponse.FromString,
            )
            try:
                info = get_info(pb.InfoRequest(), timeout=GET_INFO_SECONDS)
            except grpc.RpcError as error:
                raise NotRegistered(f"{path}: GetInfo: {error.details()}") from error
            if problem := self.why_not(info):
                notify(pb.RegistrationStatus(plugin_registered=False, error=problem), timeout=NOTIFY_SECONDS)
                raise NotRegistered(problem)
            plugin = self._connect(path, info)
            try:
                notify(pb.RegistrationStatus(plugin_registered=True), timeout=NOTIFY_SECONDS)
            except grpc.RpcError as error:
                plugin.close()
                raise NotRegistered(f"{path}: NotifyRegistrationStatus: {error.details()}") from error
        self.plugins[path] = plugin
        return plugin

    def why_not(self, info: registration_pb2.PluginInfo) -> str | None:
        """What the kubelet holds against a plugin; override to refuse one."""
        if info.type != "DRAPlugin":
            return f"no handler for plugin type {info.type}"
        if not Path(info.endpoint).is_absolute():
            return f"endpoint {info.endpoint!r} is not absolute"
        if self._dra_version(info) is None:
            return f"none of {list(info.supported_versions)} is supported"
        return None

    def plugin(self, driver: str) -> Plugin:
        """The instance that gets the calls: the one registered last."""
        return [plugin for plugin in self.plugins.values() if plugin.driver == driver][-1]

    def forget(self, path: Path) -> None:
        """Deregister: close the connection, which cancels its calls. The plugin is not told."""
        self.plugins.pop(path).close()

    def close(self) -> None:
        """As when the kubelet stops."""
        for path in list(self.plugins):
            self.forget(path)

    def _connect(self, path: Path, info: registration_pb2.PluginInfo) -> Plugin:
        version = self._dra_version(info)
        assert version is not None
        channel = grpc.insecure_channel(f"unix://{info.endpoint}", options=OPTIONS)
        plugin = Plugin(path, info.name, info.endpoint, tuple(info.supported_versions), DRA[version], channel)
        advertised = [
            version for version in self.health_versions if f"{version}.DRAResourceHealth" in info.supported_versions
        ]
        if advertised:
            plugin.stream = plugin.open_health(advertised[0])
        return plugin

    def _dra_version(self, info: registration_pb2.PluginInfo) -> str | None:
        """The first of the plugin's list, not the newest."""
        spoken = {f"{version}.DRAPlugin": version for version in self.dra_versions}
        return next((spoken[version] for version in info.supported_versions if version in spoken), None)
