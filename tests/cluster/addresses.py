"""Which loopback addresses a cluster takes, so that several fit on one machine beside each other.

Linux answers on all of 127.0.0.0/8, so each cluster owns a /16 of it and keeps the usual ports. That range is its
service range too, and the API server listens on the range's first address, port 443: this is the address that Kubernetes
gives the service `kubernetes`, so pods on the host network reach the API without any kube-proxy.
"""

import json
import random
import socket
from dataclasses import asdict, dataclass

from tests.cluster.places import ClusterError

API_PORT, ETCD_PORT, ETCD_PEER_PORT = 443, 2379, 2380
KUBELET_HEALTH_PORT, CONTROLLER_MANAGER_PORT, SCHEDULER_PORT = 10248, 10257, 10259
PORTS = (API_PORT, ETCD_PORT, ETCD_PEER_PORT, KUBELET_HEALTH_PORT, CONTROLLER_MANAGER_PORT, SCHEDULER_PORT)
NODE_ADDRESS = "127.0.0.1"  # of the node `localhost`; the kubelets of all clusters share it
RANGES = range(16, 240)
KUBELET_PORTS = range(20000, 30000)  # below Linux' range for outgoing connections


@dataclass(frozen=True, slots=True)
class Addresses:
    """The cluster's range (the second byte of its addresses) and the port of its kubelet on the node's address."""

    range_number: int
    kubelet_port: int

    @property
    def control_plane(self) -> str:
        return f"127.{self.range_number}.0.1"

    @property
    def services(self) -> str:
        return f"127.{self.range_number}.0.0/16"

    @property
    def server(self) -> str:
        return f"https://{self.control_plane}:{API_PORT}"

    @property
    def etcd(self) -> str:
        return f"http://{self.control_plane}:{ETCD_PORT}"

    @property
    def etcd_peer(self) -> str:
        return f"http://{self.control_plane}:{ETCD_PEER_PORT}"

    @property
    def kubelet_health(self) -> str:
        return f"http://{self.control_plane}:{KUBELET_HEALTH_PORT}/healthz"

    @property
    def kubelet(self) -> str:
        return f"https://{NODE_ADDRESS}:{self.kubelet_port}"

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> "Addresses":
        return cls(**json.loads(text))


def choose() -> Addresses:
    """Addresses that nobody listens on at the moment."""
    for number in random.sample(RANGES, len(RANGES)):
        if all(_is_free(f"127.{number}.0.1", port) for port in PORTS):
            break
    else:
        taken = ", ".join(str(port) for port in PORTS if not _is_free(f"127.{RANGES[0]}.0.1", port))
        raise ClusterError(
            f"a program listens on port {taken} of every address of this machine; stop it for the cluster"
        )
    for port in random.sample(KUBELET_PORTS, len(KUBELET_PORTS)):
        if _is_free(NODE_ADDRESS, port):
            return Addresses(number, port)
    raise ClusterError(f"no port from {KUBELET_PORTS[0]} to {KUBELET_PORTS[-1]} is free for the kubelet")


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that linger do not matter
        try:
            probe.bind((address, port))
        except PermissionError:
            return True  # not ours to know: only root, who starts clusters, may bind ports below 1024
        except OSError:
            return False
        return True
