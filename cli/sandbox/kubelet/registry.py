"""Which plugins are registered: the kubelet's side of the registration sockets.

It does what the kubelet of 1.37 does (pkg/kubelet/pluginmanager, cm/dra/plugin), on its caller's command: `scan` is one
turn of the reconcile loop. Deadlines are the kubelet's own.
"""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import grpc

from cli.sandbox.kubelet.plugin import DRA, OPTIONS, Plugin
from proto.registration import registration_pb2

GET_INFO_SECONDS = 1.0
NOTIFY_SECONDS = 5.0

Heard = Callable[[Plugin, Any], None]
_Identity = tuple[int, int]


class NotRegistered(Exception):  # noqa: N818  # an outcome, named as the kubelet logs it
    """The plugin could not be registered; it was told so where that was possible."""

    def __init__(self, why: str, driver: str | None = None) -> None:
        """`driver` where the plugin has said it and its connection had been opened."""
        super().__init__(why)
        self.driver = driver


class Registry:
    """Knows the plugins of one registry directory. A context manager; changed by one thread, asked by any for a `plugin` and
    whether one is `usable`.

    `dra_versions` and `health_versions`, newest first, are what this kubelet speaks; without health versions it is one that
    opens no stream. `heard` is given what comes on the health streams, None at their end; without it each stream keeps
    its reports.
    """

    def __init__(
        self,
        registry: Path,
        *,
        dra_versions: tuple[str, ...] = ("v1", "v1beta1"),
        health_versions: tuple[str, ...] = ("v1", "v1alpha1"),
        heard: Heard | None = None,
    ) -> None:
        self.registry = registry
        self.dra_versions = dra_versions
        self.health_versions = health_versions
        self._heard = heard
        self.plugins: dict[Path, Plugin] = {}
        """By registration socket, in order of registration."""
        self._identities: dict[Path, _Identity] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def sockets(self) -> list[Path]:
        """What it takes for registration sockets: sockets whose names have no leading dot, in any depth."""
        found = (path for path in self.registry.rglob("*") if not path.name.startswith("."))
        return sorted(path for path in found if _is_socket(path))

    def scan(self) -> list[Plugin]:
        """One turn of the reconcile loop: forget the plugins whose sockets are gone, then register new ones.

        What was registered in this turn. NotRegistered when one of them could not be; ask again for the others.
        """
        there = self.sockets()
        self.forget_gone(there)
        return [self.register(path) for path in there if path not in self.plugins]

    def forget_gone(self, there: list[Path]) -> list[Plugin]:
        """Deregister the plugins whose sockets are not there any more, or others of the same name. They are given back."""
        gone = [path for path in self.plugins if path not in there or _identity(path) != self._identities[path]]
        return [self.forget(path) for path in gone]

    def register(self, path: Path) -> Plugin:
        """GetInfo, connect, open the health stream, notify: in the kubelet's order."""
        if path in self.plugins:
            self.forget(path)
        identity = _identity(path)
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
                raise NotRegistered(f"{path}: GetInfo: {_details(error)}") from error
            if problem := self.why_not(info):
                try:
                    notify(pb.RegistrationStatus(plugin_registered=False, error=problem), timeout=NOTIFY_SECONDS)
                except grpc.RpcError as error:
                    raise NotRegistered(problem) from error
                raise NotRegistered(problem)
            plugin = self._connect(path, info)
            try:
                notify(pb.RegistrationStatus(plugin_registered=True), timeout=NOTIFY_SECONDS)
            except grpc.RpcError as error:
                plugin.close()
                problem = f"{path}: NotifyRegistrationStatus: {_details(error)}"
                raise NotRegistered(problem, plugin.driver) from error
        self.plugins[path] = plugin
        self._identities[path] = identity
        return plugin

    def why_not(self, info: registration_pb2.PluginInfo) -> str | None:
        """What the kubelet holds against a plugin; override to refuse one."""
        if info.type != "DRAPlugin":
            return f"no handler for plugin type {info.type}"
        if not Path(info.endpoint).is_absolute():
            return f"endpoint {info.endpoint!r} is not absolute"
        if self._dra_version(info) is None:
            return f"none of {list(info.supported_versions)} is supported"
        if any((plugin.driver, plugin.endpoint) == (info.name, info.endpoint) for plugin in self.plugins.values()):
            return f"endpoint {info.endpoint} already registered for DRA driver plugin {info.name}"
        return None

    def plugin(self, driver: str) -> Plugin:
        """The instance that gets the calls: of those connected the one registered last. IndexError without any."""
        instances = [plugin for plugin in list(self.plugins.values()) if plugin.driver == driver]
        return next((plugin for plugin in reversed(instances) if plugin.connected), instances[-1])

    def usable(self, driver: str) -> bool:
        """Whether one of its instances is connected."""
        return any(plugin.connected for plugin in list(self.plugins.values()) if plugin.driver == driver)

    def watch_health(self, plugin: Plugin) -> None:
        """Open the health stream of a plugin that offers one, again if need be."""
        if plugin.health_version is not None:
            heard = self._heard
            listen = None if heard is None else lambda report: heard(plugin, report)
            plugin.stream = plugin.open_health(plugin.health_version, listen)

    def forget(self, path: Path) -> Plugin:
        """Deregister: close the connection, which cancels its calls. The plugin is not told."""
        plugin = self.plugins.pop(path)
        self._identities.pop(path)
        plugin.close()
        return plugin

    def close(self) -> None:
        """As when the kubelet stops."""
        for path in list(self.plugins):
            self.forget(path)

    def _connect(self, path: Path, info: registration_pb2.PluginInfo) -> Plugin:
        version = self._dra_version(info) or self.dra_versions[0]
        channel = grpc.insecure_channel(f"unix://{info.endpoint}", options=OPTIONS)
        plugin = Plugin(path, info.name, info.endpoint, tuple(info.supported_versions), DRA[version], channel)
        offered = (each for each in self.health_versions if f"{each}.DRAResourceHealth" in info.supported_versions)
        plugin.health_version = next(offered, None)
        self.watch_health(plugin)
        return plugin

    def _dra_version(self, info: registration_pb2.PluginInfo) -> str | None:
        """The first of the plugin's list, not the newest."""
        spoken = {f"{version}.DRAPlugin": version for version in self.dra_versions}
        return next((spoken[version] for version in info.supported_versions if version in spoken), None)


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:  # gone since it was listed
        return False


def _identity(path: Path) -> _Identity:
    """Tells a socket from a later one at the same place: the kubelet is told by the kernel that it was made anew."""
    try:
        found = path.lstat()
    except OSError:
        return (0, 0)
    return (found.st_ino, found.st_mtime_ns)


def _details(error: grpc.RpcError) -> str:
    return str(getattr(error, "details", error.__str__)())
