"""One registered plugin instance: the calls that the kubelet makes to it.

Deadlines and services are those of pkg/kubelet/cm/dra/plugin. How an instance comes to be registered is in `registry`.
"""

import queue
import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc

from proto.dra.v1 import dra_pb2 as dra_v1
from proto.dra.v1beta1 import dra_pb2 as dra_v1beta1
from proto.health.v1 import health_pb2 as health_v1
from proto.health.v1alpha1 import health_pb2 as health_v1alpha1

CALL_SECONDS = 45.0
DRA: dict[str, ModuleType] = {"v1": dra_v1, "v1beta1": dra_v1beta1}
HEALTH: dict[str, ModuleType] = {"v1": health_v1, "v1alpha1": health_v1alpha1}
OPTIONS = (("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1))

ClaimId = tuple[str, str, str]
"""Namespace, name, uid."""


@dataclass
class HealthStream:
    """An open NodeWatchResources call, read by a thread of its own.

    Reports are kept for `report`, or where there is a `heard`, given to that; it hears None when the stream has ended.
    """

    call: Any
    heard: Callable[[Any], None] | None = None
    reports: "queue.Queue[Any]" = field(default_factory=queue.Queue)
    ended: threading.Event = field(default_factory=threading.Event)
    error: grpc.RpcError | None = None
    """Why it ended; None when the plugin ended it in order, or it is open."""

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, name="kubelet-health", daemon=True)
        self._reader.start()

    def report(self, timeout: float = 5.0) -> Any:
        """The next message; queue.Empty when none comes in time."""
        return self.reports.get(timeout=timeout)

    def close(self) -> None:
        """End it and wait for its thread."""
        self.call.cancel()
        self._reader.join(timeout=5)

    @property
    def unserved(self) -> bool:
        """Whether it ended because the plugin has no such service, though it may have offered it."""
        code: Callable[[], Any] = getattr(self.error, "code", lambda: None)
        return code() is grpc.StatusCode.UNIMPLEMENTED

    def _read(self) -> None:
        take = self.heard or self.reports.put
        try:
            for report in self.call:
                take(report)
        except grpc.RpcError as error:
            self.error = error
        finally:
            self.ended.set()
            if self.heard is not None:
                self.heard(None)


@dataclass(eq=False)
class Plugin:
    """A registered plugin instance: one connection for everything but the registration."""

    socket: Path
    driver: str
    endpoint: str
    supported_versions: tuple[str, ...]
    pb: ModuleType
    channel: grpc.Channel
    health_version: str | None = None
    """The version of the health stream that it is asked for; None where it offers none."""
    stream: HealthStream | None = None

    def prepare(self, claims: Iterable[ClaimId], timeout: float = CALL_SECONDS) -> Any:
        """NodePrepareResources: the reply of the version spoken. Raises grpc.RpcError."""
        return self.prepare_call(claims, timeout).result()

    def prepare_call(self, claims: Iterable[ClaimId], timeout: float = CALL_SECONDS) -> Any:
        """The same as a future, to be cancelled or waited for."""
        return self._call("Prepare").future(self._request("Prepare", claims), timeout=timeout)

    def unprepare(self, claims: Iterable[ClaimId], timeout: float = CALL_SECONDS) -> Any:
        """NodeUnprepareResources. Raises grpc.RpcError."""
        return self._call("Unprepare")(self._request("Unprepare", claims), timeout=timeout)

    def open_health(self, version: str, heard: Callable[[Any], None] | None = None) -> HealthStream:
        """Open one more health stream, whatever the plugin advertises. The caller closes it."""
        pb = HEALTH[version]
        watch = self.channel.unary_stream(
            f"/{version}.DRAResourceHealth/NodeWatchResources",
            pb.NodeWatchResourcesRequest.SerializeToString,
            pb.NodeWatchResourcesResponse.FromString,
        )
        return HealthStream(watch(pb.NodeWatchResourcesRequest()), heard)

    @property
    def connected(self) -> bool:
        """Whether somebody is at the other end: the health stream is open, or the socket is listened on.

        gRPC for Python tells of lost connections only by polling in a thread that may outlive the channel.
        """
        return (self.stream is not None and not self.stream.ended.is_set()) or self.listens

    @property
    def listens(self) -> bool:
        """Whether its socket takes connections."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(self.endpoint)
            except OSError:
                return False
        return True

    def close(self) -> None:
        """End the stream and the connection, which cancels its calls."""
        if self.stream is not None:
            self.stream.close()
        self.channel.close()

    def _request(self, verb: str, claims: Iterable[ClaimId]) -> Any:
        wire = [self.pb.Claim(namespace=namespace, name=name, uid=uid) for namespace, name, uid in claims]
        return getattr(self.pb, f"Node{verb}ResourcesRequest")(claims=wire)

    def _call(self, verb: str) -> Any:
        return self.channel.unary_unary(
            f"/{self.pb.DESCRIPTOR.package}.DRAPlugin/Node{verb}Resources",
            getattr(self.pb, f"Node{verb}ResourcesRequest").SerializeToString,
            getattr(self.pb, f"Node{verb}ResourcesResponse").FromString,
        )
