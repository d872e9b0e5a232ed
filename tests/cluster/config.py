"""The configuration texts of the test node: containerd, kubelet, CNI stubs, and the set-up of its mount namespace."""

from collections.abc import Mapping
from pathlib import Path

import yaml

from tests.cluster.addresses import KUBELET_HEALTH_PORT, NODE_ADDRESS, Addresses
from tests.cluster.images import PAUSE
from tests.cluster.layout import SHOWN_IN_NAMESPACE, Layout

CNI_VERSION = "1.0.0"
# Linux settings that the kubelet writes at its start; the node gets files of its own in their place
KERNEL_SETTINGS = {"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1"}


def containerd(layout: Layout, runc: Path) -> str:
    """containerd's configuration (version 3 of its format); paths that are not named are its defaults."""
    return f"""\
version = 3
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{PAUSE}"

[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = true
  cdi_spec_dirs = ["/var/run/cdi"]
  disable_apparmor = true
  # Without CAP_SYS_RESOURCE runc cannot lower an oom score: "can't get final child's PID from pipe: EOF"
  restrict_oom_score_adj = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["{layout.configuration}/cni/bin"]
  conf_dir = "{layout.configuration}/cni/net.d"
  use_internal_loopback = true

[plugins.'io.containerd.cri.v1.runtime'.containerd]
  default_runtime_name = "runc"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = "{runc}"
  SystemdCgroup = false

[plugins.'io.containerd.grpc.v1.cri']
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
"""


def kubelet(layout: Layout, addresses: Addresses, feature_gates: Mapping[str, bool]) -> str:
    """The kubelet's configuration: it leaves the host's control groups, swap and firewall alone."""
    return yaml.safe_dump(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": NODE_ADDRESS,
            "port": addresses.kubelet_port,
            "healthzBindAddress": addresses.control_plane,
            "healthzPort": KUBELET_HEALTH_PORT,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(layout.pki / "kubelet-server.crt"),
            "tlsPrivateKeyFile": str(layout.pki / "kubelet-server.key"),
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,
            "failSwapOn": False,
            "localStorageCapacityIsolation": False,
            "makeIPTablesUtilChains": False,
            # a test machine's disk may be nearly full: no evictions for that, and no image is ever collected
            "evictionHard": {"memory.available": "100Mi"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "volumePluginDir": "/var/lib/kubelet/volume-plugins",
            "resolvConf": str(layout.configuration / "resolv.conf"),
            "featureGates": dict(feature_gates),
        },
        sort_keys=False,
    )


def namespace(layout: Layout) -> str:
    """The shell script that sets up the node's mount namespace and then holds it open."""
    binds = {str(layout.host / path.lstrip("/")): path for path in SHOWN_IN_NAMESPACE}
    binds |= {str(layout.kubelet): "/var/lib/kubelet", str(layout.cdi): "/run/cdi"}
    binds |= {str(layout.configuration / "sys" / name): f"/proc/sys/{name}" for name in KERNEL_SETTINGS}
    return "\n".join(
        [
            "set -e",
            *(f"mount --no-mtab --bind '{source}' '{target}'" for source, target in binds.items()),
            "mount --no-mtab --make-rshared /  # a pod may ask for mounts that come and go with the node's",
            f"touch '{layout.namespace_ready}'",
            "exec sleep infinity",
            "",
        ]
    )


def cni_network() -> str:
    """The one pod network, served by the plugin below."""
    return f'{{"cniVersion": "{CNI_VERSION}", "name": "none", "plugins": [{{"type": "none"}}]}}\n'


def cni_plugin() -> str:
    """A CNI plugin that makes no network: a pod has its own loopback and a made-up address, and reaches nothing."""
    interfaces = r'"interfaces":[{"name":"%s","sandbox":"%s"}]'
    addresses = r'"ips":[{"interface":0,"address":"10.244.0.%d/24"}]'
    return f"""\
#!/bin/sh
cat >/dev/null
case "$CNI_COMMAND" in
ADD) printf '{{"cniVersion":"{CNI_VERSION}",{interfaces},{addresses}}}' \\
  "${{CNI_IFNAME:-eth0}}" "$CNI_NETNS" $(($$ % 250 + 2)) ;;
VERSION) echo '{{"cniVersion":"{CNI_VERSION}","supportedVersions":["0.4.0","{CNI_VERSION}"]}}' ;;
esac
"""


def write(layout: Layout, addresses: Addresses, runc: Path, feature_gates: Mapping[str, bool]) -> None:
    """Writes all of it where the programs look for it."""
    folder = layout.configuration
    resolver = Path("/etc/resolv.conf")  # copied: on many hosts it is a link into /run, which the namespace replaces
    texts = {
        "containerd.toml": containerd(layout, runc),
        "kubelet.yaml": kubelet(layout, addresses, feature_gates),
        "namespace.sh": namespace(layout),
        "cni/net.d/10-none.conflist": cni_network(),
        "cni/bin/none": cni_plugin(),
        "resolv.conf": resolver.read_text() if resolver.exists() else "",
        **{f"sys/{name}": f"{value}\n" for name, value in KERNEL_SETTINGS.items()},
    }
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "cni/bin/none").chmod(0o755)
