"""The Registration service: who we are, and what the kubelet made of it."""

from collections.abc import Callable

import grpc
import structlog

from kubeletplugin.sockets.paths import SocketPaths
from proto.registration import registration_pb2 as pb

PLUGIN_TYPE = "DRAPlugin"

SUPPORTED_VERSIONS = ("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
"""In this order: the kubelet takes the first DRAPlugin that it knows, not the newest (pkg/kubelet/cm/dra/plugin)."""

SERVICE = "pluginregistration.Registration"

_log = structlog.get_logger(__name__)


def registration_handlers(paths: SocketPaths, notified: Callable[[str | None], None]) -> grpc.GenericRpcHandler:
    """GetInfo and NotifyRegistrationStatus. `notified` gets the kubelet's error, None when it registered us; it must neither
    block nor raise, because an error in answering undoes the registration.
    """

    def get_info(request: pb.InfoRequest, context: grpc.ServicerContext) -> pb.PluginInfo:  # noqa: ARG001  # gRPC's signature
        return pb.PluginInfo(
            type=PLUGIN_TYPE, name=paths.driver, endpoint=str(paths.dra), supported_versions=SUPPORTED_VERSIONS
        )

    def notify(request: pb.RegistrationStatus, context: grpc.ServicerContext) -> pb.RegistrationStatusResponse:  # noqa: ARG001  # as above
        if request.plugin_registered:
            _log.info("kubelet registered the plugin", driver=paths.driver)
            notified(None)
        else:
            error = request.error or "no reason given"
            _log.error("kubelet refused the plugin", driver=paths.driver, error=error)
            notified(error)
        return pb.RegistrationStatusResponse()

    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "GetInfo": grpc.unary_unary_rpc_method_handler(
                get_info, pb.InfoRequest.FromString, pb.PluginInfo.SerializeToString
            ),
            "NotifyRegistrationStatus": grpc.unary_unary_rpc_method_handler(
                notify, pb.RegistrationStatus.FromString, pb.RegistrationStatusResponse.SerializeToString
            ),
        },
    )
