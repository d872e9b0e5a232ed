"""The DRAResourceHealth services: a stream to the kubelet that says how every device is.

It is worth having for another reason too: its being open is the sign that the kubelet holds on to us (`registered`).
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
import structlog

from api.kube.events import cut
from proto.health.v1 import health_pb2 as v1
from proto.health.v1alpha1 import health_pb2 as v1alpha1

V1_SERVICE = "v1.DRAResourceHealth"
V1ALPHA1_SERVICE = "v1alpha1.DRAResourceHealth"

RESEND_SECONDS = 20.0
"""Below the 30 s after which the kubelet takes a device's last report for stale."""

STALE_SECONDS = 60
"""What we ask for instead of the kubelet's 30 s: two lost or late reports change nothing."""

STREAMS_MAX = 4
"""At a time. The kubelet keeps one; after a restart its old one may still be on its way out."""

MESSAGE_BYTES = 1024
"""Of a device's message; the kubelet cuts what is longer (pkg/kubelet/cm/dra)."""


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """How one device is."""

    pool: str
    device: str
    healthy: bool | None = None
    """None where nobody has looked, or not lately: never told as healthy."""
    message: str = ""


Devices = Callable[[], Iterable[DeviceHealth]]
"""All devices of this node now. Called by several threads, without a lock of ours held."""

_log = structlog.get_logger(__name__)


class HealthStreams:
    """All open streams of one plugin instance.

    Lock order: `_condition` is the only lock here and a leaf. Nothing is called with it held: not `devices`, not `opened` or
    `closed`, not gRPC; a kubelet that reads slowly, or a callback that takes its own lock, delays its own stream only.
    """

    def __init__(
        self,
        devices: Devices,
        *,
        opened: Callable[[], None],
        closed: Callable[[], None],
        resend_seconds: float = RESEND_SECONDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`opened` and `closed` are called once for each stream, from gRPC's threads; they must neither block nor raise."""
        self._devices = devices
        self._opened = opened
        self._closed = closed
        self._resend_seconds = resend_seconds
        self._now = now
        self._condition = threading.Condition()
        self._generation = 0
        self._open: set[_Stream] = set()
        self._ended = False
        # A stream keeps its worker for as long as it lives. With workers of their own, streams and calls cannot starve each
        # other; one more than streams, to turn away those that are too many.
        self._workers = ThreadPoolExecutor(STREAMS_MAX + 1, thread_name_prefix="health")

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """DRAResourceHealth v1 and v1alpha1."""
        return (self._service(V1_SERVICE, v1), self._service(V1ALPHA1_SERVICE, v1alpha1))

    def changed(self) -> None:
        """Other devices, or the same ones differently: say it to every kubelet that listens."""
        with self._condition:
            self._generation += 1
            self._condition.notify_all()

    def end(self) -> None:
        """Close every stream, and refuse new ones. Repeatable."""
        with self._condition:
            self._ended = True
            self._condition.notify_all()

    def release_workers(self) -> None:
        """Once the server has stopped, not before: a call that finds its workers gone kills gRPC's serving thread."""
        self._workers.shutdown(wait=False)

    def _service(self, service: str, pb: Any) -> grpc.GenericRpcHandler:
        """One version. `pb` is its generated module; the two differ in their package only."""

        def watch(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: ARG001  # gRPC's signature
            yield from self._watch(pb, context)

        method = grpc.unary_stream_rpc_method_handler(
            _OnWorkers(watch, self._workers),
            pb.NodeWatchResourcesRequest.FromString,
            pb.NodeWatchResourcesResponse.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(service, {"NodeWatchResources": method})

    def _watch(self, pb: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        stream = self._enter()
        if stream is None:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{STREAMS_MAX} health streams are open already")
        log = _log.bind(service=pb.DESCRIPTOR.package)
        try:
            self._opened()
            log.info("health stream opened")
            # At once when the kubelet goes, also while this worker waits or is stuck in sending.
            if not context.add_callback(lambda: self._leave(stream)):
                return
            while self._wait(stream):
                yield self._report(pb)
        finally:
            self._leave(stream)
            log.info("health stream closed")

    def _report(self, pb: Any) -> Any:
        now = int(self._now())
        return pb.NodeWatchResourcesResponse(
            devices=[
                pb.DeviceHealth(
                    device=pb.DeviceIdentifier(pool_name=device.pool, device_name=device.device),
                    health=pb.UNKNOWN if device.healthy is None else pb.HEALTHY if device.healthy else pb.UNHEALTHY,
                    last_updated_time=now,
                    health_check_timeout_seconds=STALE_SECONDS,
                    message=cut(device.message, MESSAGE_BYTES),
                )
                for device in self._devices()
            ]
        )

    def _enter(self) -> "_Stream | None":
        with self._condition:
            if self._ended or len(self._open) >= STREAMS_MAX:
                return None
            stream = _Stream()
            self._open.add(stream)
            return stream

    def _leave(self, stream: "_Stream") -> None:
        """Repeatable: whoever comes first, gRPC's callback or the worker, reports the end."""
        with self._condition:
            first = stream in self._open
            self._open.discard(stream)
            self._condition.notify_all()
        if first:
            self._closed()

    def _wait(self, stream: "_Stream") -> bool:
        """Until there is something to say (True) or the stream is over (False)."""
        with self._condition:
            self._condition.wait_for(
                lambda: self._ended or stream not in self._open or stream.said != self._generation, self._resend_seconds
            )
            stream.said = self._generation
            return not self._ended and stream in self._open


class _Stream:
    """What one stream has said; guarded by the condition of HealthStreams."""

    __slots__ = ("said",)

    def __init__(self) -> None:
        self.said = -1


class _OnWorkers:
    """A method that gRPC runs on its own workers.

    `experimental_thread_pool` is read in grpc/_server.py (1.85.3). Should a later grpcio ignore it, streams use the workers of
    the calls, of which STREAMS_MAX leaves plenty.
    """

    def __init__(self, method: Callable[..., Iterator[Any]], workers: ThreadPoolExecutor) -> None:
        self._method = method
        self.experimental_thread_pool = workers

    def __call__(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        return self._method(request, context)
