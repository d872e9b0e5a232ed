"""The DRAPlugin services: what the kubelet sends becomes a claim reference, what comes back becomes a reply.

Nothing is decided here. How a claim is prepared is behind `Preparer`.
"""

import time
from collections.abc import Callable
from typing import Any, Protocol

import grpc
import structlog

from api.claims import PreparedDevice
from api.names import ClaimRef
from api.refusals import Refused
from proto.dra.v1 import dra_pb2 as v1
from proto.dra.v1beta1 import dra_pb2 as v1beta1

V1_SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
V1BETA1_SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin"

_log = structlog.get_logger(__name__)


class Preparer(Protocol):
    """Who does the work. Called by several threads at once, also for the same claim."""

    def prepare(self, ref: ClaimRef, *, cancelled: Callable[[], bool]) -> tuple[PreparedDevice, ...]:
        """Prepare the claim, or say again what was prepared; Refused with the reason, which ends up in an event of the pod.

        `cancelled` turns true when nobody waits for the answer any more: after 45 s with Kubernetes' kubelet, or at a stop.
        """

    def unprepare(self, ref: ClaimRef) -> None:
        """Undo it; nothing to undo is success. Refused with the reason."""


def dra_handlers(
    preparer: Preparer, *, monotonic: Callable[[], float] = time.monotonic
) -> tuple[grpc.GenericRpcHandler, ...]:
    """DRAPlugin v1 and v1beta1 on one Preparer. v1beta1 cannot carry share IDs, so they are left out there."""

    def v1_device(device: PreparedDevice) -> v1.Device:
        return v1.Device(
            request_names=device.requests,
            pool_name=device.pool,
            device_name=device.device,
            cdi_device_ids=device.cdi_ids,
            share_id=device.share_id,
        )

    def v1beta1_device(device: PreparedDevice) -> v1beta1.Device:
        return v1beta1.Device(
            request_names=device.requests,
            pool_name=device.pool,
            device_name=device.device,
            cdi_device_ids=device.cdi_ids,
        )

    return (
        _service(V1_SERVICE, v1, v1_device, preparer, monotonic),
        _service(V1BETA1_SERVICE, v1beta1, v1beta1_device, preparer, monotonic),
    )


def _service(
    service: str, pb: Any, to_wire: Callable[[PreparedDevice], Any], preparer: Preparer, monotonic: Callable[[], float]
) -> grpc.GenericRpcHandler:
    """One version of the service. `pb` is its generated module: the two have no type in common, only the names used here."""

    def prepare(request: Any, context: grpc.ServicerContext) -> Any:
        def cancelled() -> bool:
            return not context.is_active()

        def one(ref: ClaimRef) -> Any:
            devices = preparer.prepare(ref, cancelled=cancelled)
            return pb.NodePrepareResourceResponse(devices=[to_wire(device) for device in devices])

        def refusal(error: str) -> Any:
            return pb.NodePrepareResourceResponse(error=error)

        answers = {
            claim.uid: _answer("claim prepared", "NodePrepareResources", claim, one, refusal, monotonic)
            for claim in request.claims
        }
        return pb.NodePrepareResourcesResponse(claims=answers)

    def unprepare(request: Any, context: grpc.ServicerContext) -> Any:  # noqa: ARG001  # gRPC's signature
        def one(ref: ClaimRef) -> Any:
            preparer.unprepare(ref)
            return pb.NodeUnprepareResourceResponse()

        def refusal(error: str) -> Any:
            return pb.NodeUnprepareResourceResponse(error=error)

        answers = {
            claim.uid: _answer("claim unprepared", "NodeUnprepareResources", claim, one, refusal, monotonic)
            for claim in request.claims
        }
        return pb.NodeUnprepareResourcesResponse(claims=answers)

    return grpc.method_handlers_generic_handler(
        service,
        {
            "NodePrepareResources": grpc.unary_unary_rpc_method_handler(
                prepare, pb.NodePrepareResourcesRequest.FromString, pb.NodePrepareResourcesResponse.SerializeToString
            ),
            "NodeUnprepareResources": grpc.unary_unary_rpc_method_handler(
                unprepare,
                pb.NodeUnprepareResourcesRequest.FromString,
                pb.NodeUnprepareResourcesResponse.SerializeToString,
            ),
        },
    )


def _answer(
    done: str,
    method: str,
    claim: Any,
    one: Callable[[ClaimRef], Any],
    refusal: Callable[[str], Any],
    monotonic: Callable[[], float],
) -> Any:
    """The edge around one claim: it always gets an answer, and its neighbours never learn what went wrong here."""
    ref = ClaimRef(claim.namespace, claim.name, claim.uid)
    fields = {"claim": str(ref), "uid": ref.uid, "method": method}
    begun = monotonic()
    # Bound to the thread as well, so that what the Preparer logs on its way carries the same fields.
    with structlog.contextvars.bound_contextvars(**fields):
        try:
            answer = one(ref)
        except Refused as refused:
            error = str(refused)
            # The Preparer has told who is concerned, with what it knows of devices; here it is said for whoever debugs calls.
            _log.debug("claim refused", **fields, outcome="refused", why=error, seconds=round(monotonic() - begun, 3))
        except Exception as defect:  # noqa: BLE001  # logged with its traceback, below
            error = (
                f"internal error at claim {ref}: {type(defect).__name__}: {defect} (see the plugin's log for {ref.uid})"
            )
            _log.exception("claim failed", **fields, outcome="failed", seconds=round(monotonic() - begun, 3))
        else:
            _log.debug(done, **fields, outcome="done", seconds=round(monotonic() - begun, 3))
            return answer
    # A file name that is no UTF-8 may be part of the text; protobuf would refuse it, and the whole reply with it.
    return refusal(error.encode(errors="backslashreplace").decode())
