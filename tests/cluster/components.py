"""The command lines of the control plane and of the node's programs."""

from collections.abc import Mapping, Sequence

from tests.cluster.addresses import API_PORT, CONTROLLER_MANAGER_PORT, SCHEDULER_PORT, Addresses
from tests.cluster.build import Binaries
from tests.cluster.layout import Layout
from tests.cluster.pki import NODE


def etcd(programs: Binaries, layout: Layout, addresses: Addresses) -> list[str]:
    """etcd without fsync: what it holds is worth no more than the test."""
    return [
        programs["etcd"],
        f"--data-dir={layout.etcd_data}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        f"--listen-client-urls={addresses.etcd}",
        f"--advertise-client-urls={addresses.etcd}",
        f"--listen-peer-urls={addresses.etcd_peer}",
        f"--initial-advertise-peer-urls={addresses.etcd_peer}",
        f"--initial-cluster=default={addresses.etcd_peer}",
    ]


def apiserver(
    programs: Binaries,
    layout: Layout,
    addresses: Addresses,
    feature_gates: Mapping[str, bool],
    runtime_config: Sequence[str],
) -> list[str]:
    """The API server on port 443 of the cluster's range; no endpoints for it, they may not be loopback addresses."""
    pki = layout.pki
    return [
        programs["kube-apiserver"],
        f"--bind-address={addresses.control_plane}",
        f"--advertise-address={addresses.control_plane}",
        f"--secure-port={API_PORT}",
        "--endpoint-reconciler-type=none",
        f"--service-cluster-ip-range={addresses.services}",
        f"--etcd-servers={addresses.etcd}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--client-ca-file={pki}/ca.crt",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--kubelet-client-certificate={pki}/apiserver-kubelet-client.crt",
        f"--kubelet-client-key={pki}/apiserver-kubelet-client.key",
        "--kubelet-preferred-address-types=Hostname",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki}/accounts.pub",
        f"--service-account-signing-key-file={pki}/accounts.key",
        *([f"--runtime-config={','.join(runtime_config)}"] if runtime_config else []),
        *_gates(feature_gates),
    ]


def controller_manager(
    programs: Binaries, layout: Layout, addresses: Addresses, feature_gates: Mapping[str, bool]
) -> list[str]:
    """The controller manager, with one service account for each controller as in a real cluster."""
    return [
        programs["kube-controller-manager"],
        *_client_and_server("kube-controller-manager", layout, addresses, CONTROLLER_MANAGER_PORT),
        "--use-service-account-credentials=true",
        "--kube-api-qps=500",  # by default its many controllers wait for each other for seconds at the start
        "--kube-api-burst=500",
        f"--service-account-private-key-file={layout.pki}/accounts.key",
        f"--root-ca-file={layout.pki}/ca.crt",
        *_gates(feature_gates),
    ]


def scheduler(programs: Binaries, layout: Layout, addresses: Addresses, feature_gates: Mapping[str, bool]) -> list[str]:
    """The scheduler with its default profile."""
    return [
        programs["kube-scheduler"],
        *_client_and_server("kube-scheduler", layout, addresses, SCHEDULER_PORT),
        *_gates(feature_gates),
    ]


def namespace(layout: Layout) -> list[str]:
    """The process that makes the node's mount namespace and holds it open."""
    return ["unshare", "--mount", "--propagation=private", "--", "/bin/sh", str(layout.configuration / "namespace.sh")]


def inside(namespace_pid: int) -> list[str]:
    """The prefix that runs a command in the node's mount namespace; its working directory becomes `/`."""
    return ["nsenter", f"--mount=/proc/{namespace_pid}/ns/mnt", "--"]


def containerd(programs: Binaries, layout: Layout) -> list[str]:
    """containerd; the shim has to be in its PATH."""
    return [programs["containerd"], f"--config={layout.configuration}/containerd.toml"]


def kubelet(programs: Binaries, layout: Layout) -> list[str]:
    """The kubelet of the only node."""
    return [
        programs["kubelet"],
        f"--config={layout.configuration}/kubelet.yaml",
        f"--kubeconfig={layout.pki}/kubelet.kubeconfig",
        f"--hostname-override={NODE}",
    ]


def _client_and_server(name: str, layout: Layout, addresses: Addresses, port: int) -> list[str]:
    kubeconfig = layout.pki / f"{name}.kubeconfig"
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={addresses.control_plane}",
        f"--secure-port={port}",
        f"--cert-dir={layout.temporary}",
        "--leader-elect=false",
    ]


def _gates(feature_gates: Mapping[str, bool]) -> list[str]:
    if not feature_gates:
        return []
    return [f"--feature-gates={','.join(f'{name}={str(on).lower()}' for name, on in feature_gates.items())}"]
