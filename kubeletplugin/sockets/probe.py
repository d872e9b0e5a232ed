"""Whether our own sockets answer, asked the way the kubelet asks: for /healthz.

A process can look well while its sockets are gone or its workers stuck, so the answer has to come through the files.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from api.refusals import Reason
from kubeletplugin.sockets.dra import V1_SERVICE
from kubeletplugin.sockets.registration import SERVICE
from kubeletplugin.sockets.socketfiles import address
from proto.dra.v1 import dra_pb2
from proto.registration import registration_pb2

CLIENT_OPTIONS = (
    # Else grpcio sends the socket's path as authority, which strict servers answer with PROTOCOL_ERROR (Case L9,
    # grpc/grpc#34305).
    ("grpc.default_authority", "localhost"),
    # Else a channel shares the growing pauses of others in this process that dialled the same path in vain, and a mended
    # socket looks broken for a while.
    ("grpc.use_local_subchannel_pool", 1),
)


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """One of our sockets does not do what the kubelet needs of it."""

    path: Path
    problem: str

    @property
    def what(self) -> str:
        return f"{self.path} does not answer: {self.problem}"

    @property
    def remedy(self) -> str:
        return "a restart of the plugin makes its sockets anew; if that does not help, see its log"


def connect(path: Path) -> grpc.Channel:
    """A client's channel to a Unix socket; nothing is sent yet. The caller closes it."""
    return grpc.insecure_channel(address(path), options=CLIENT_OPTIONS)


def probe(registration: Path, timeout_seconds: float) -> Reason | None:
    """None when the registration socket says who we are and the socket it names takes calls, within the time for both."""
    deadline = time.monotonic() + timeout_seconds
    try:
        with connect(registration) as channel:
            ask = channel.unary_unary(
                f"/{SERVICE}/GetInfo",
                registration_pb2.InfoRequest.SerializeToString,
                registration_pb2.PluginInfo.FromString,
            )
            info = ask(registration_pb2.InfoRequest(), timeout=timeout_seconds)
    except grpc.RpcError as error:
        return NoAnswer(registration, _told(error))
    endpoint = Path(info.endpoint)
    try:
        with connect(endpoint) as channel:
            prepare = channel.unary_unary(
                f"/{V1_SERVICE}/NodePrepareResources",
                dra_pb2.NodePrepareResourcesRequest.SerializeToString,
                dra_pb2.NodePrepareResourcesResponse.FromString,
            )
            # No claims: nothing is prepared, but a worker has to answer.
            prepare(dra_pb2.NodePrepareResourcesRequest(), timeout=max(0.0, deadline - time.monotonic()))
    except grpc.RpcError as error:
        return NoAnswer(endpoint, _told(error))
    return None


def _told(error: Any) -> str:
    """Any, because each RpcError that a call raises is a grpc.Call too, and the types cannot say that."""
    return f"{error.code().name}: {error.details()}"
