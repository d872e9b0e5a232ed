"""The floor of every call: a gRPC server on a unix socket that answers at once, run as `python -m tests.bench.echo SOCKET`.

The same library, messages and number of threads as the plugin, and nothing behind them.
"""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from proto.dra.v1 import dra_pb2

SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
WORKERS = 32


def prepare(request: Any, context: Any) -> Any:
    """One device for each claim."""
    device = dra_pb2.Device(pool_name="pool", device_name="gpu-53-00-0", request_names=["gpu"], cdi_device_ids=["a=b"])
    answer = dra_pb2.NodePrepareResourceResponse(devices=[device])
    return dra_pb2.NodePrepareResourcesResponse(claims={claim.uid: answer for claim in request.claims})


def main() -> int:
    """Serve until killed."""
    handler = grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "NodePrepareResources": grpc.unary_unary_rpc_method_handler(
                prepare,
                dra_pb2.NodePrepareResourcesRequest.FromString,
                dra_pb2.NodePrepareResourcesResponse.SerializeToString,
            )
        },
    )
    server = grpc.server(ThreadPoolExecutor(WORKERS), handlers=[handler])
    server.add_insecure_port(f"unix://{sys.argv[1]}")
    server.start()
    threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
