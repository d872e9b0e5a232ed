"""The node plugin's settings: each with its flag, its environment variable, its default, and why."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from api.flags import DRIVER_NAME, HTTP_PORT, KUBECONFIG, LOG_FORMAT, LOG_LEVEL, Flag, Values
from api.names import NAMESPACE, is_dns_subdomain
from kubeletplugin.sockets.paths import PLUGINS_DIR, REGISTRY_DIR

if TYPE_CHECKING:  # a probe reads settings and needs no more
    from kubeletplugin.discovery.simulated import Nodes

_DESCRIPTION = "Finds this node's GPUs, reports them, and hands them to the kubelet's pods."
_INSTANCE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Settings:
    """What one run of the plugin was told."""

    node: str
    """The Node's name, as the kubelet registered it."""
    pod_uid: str | None
    """UID of the plugin's pod. With it sockets are named for the pod, so that two pods can serve during a rolling update;
    without it there is one fixed set of sockets and one instance a node."""
    namespace: str
    """Where this instance's Lease is kept."""
    driver: str
    """The DRA driver's name; pools, CDI kinds and attribute domains derive from it."""
    kubeconfig: Path | None
    """None: as `api.kube.config` finds it; in a pod, the service account."""
    plugin_dir: Path
    """Records and the DRA socket. On a disk that survives a reboot: /var/lib/kubelet/plugins does, /run does not."""
    registry_dir: Path
    """Where the kubelet looks for plugins."""
    cdi_dir: Path
    """Where the container runtime looks for CDI files of running things."""
    cdi_mode: str
    """`auto`, `nvidia-ctk` or `builtin`."""
    driver_root: Path
    """The root under which the driver's libraries are, as this process sees it."""
    host_driver_root: Path
    """The same root as the container runtime sees it."""
    dev_root: Path
    """The root whose /dev has the GPUs' nodes, as this process sees it."""
    host_dev_root: Path
    """The same root as the container runtime sees it."""
    sysfs_root: Path
    proc_root: Path
    machine: Path | None
    """A machine file: simulate this hardware instead of looking for real one."""
    machine_root: Path
    """Where a simulated machine's sysfs and device nodes are rendered."""
    host_machine_root: Path
    """The same folder as the container runtime sees it."""
    machine_nodes: "Nodes"
    """What stands for a simulated machine's device nodes: `devices` are real ones, which a container runtime can hand out;
    `plain` files need no root; `auto` makes devices where that is permitted."""
    rediscover_seconds: float
    """How often to look at the hardware again. 60: one pass costs milliseconds, and most changes announce themselves."""
    reconcile_seconds: float
    """How often to compare records, CDI files and hardware. 60: it reads local files; the API is asked about a claim once in
    ten minutes."""
    health_seconds: float
    """How often to look at the GPUs' health. 10: a look costs milliseconds, and what matters most comes as an event."""
    watch_xids: bool
    """Whether to hold NVML open and hear of Xids as they happen. Off, NVML is open for moments only, so that other tools can
    reset GPUs or change their MIG mode while the plugin runs; an Xid after which the driver asks for nothing is not seen."""
    http_port: int
    """Port of /healthz, /readyz and /metrics on all addresses; 0 turns them off. One that is taken is waited for, as in an
    update, and nothing else waits for it."""
    log_format: str
    """`json` for machines, `console` for people, `auto` for console where stderr is a terminal."""
    log_level: str


_FLAGS: tuple[Flag, ...] = (
    ("--node-name", "NODE_NAME", None, "name of the Node object of this machine (required)"),
    ("--pod-uid", "POD_UID", "", "UID of the plugin's pod; lets two pods serve during a rolling update"),
    ("--namespace", "NAMESPACE", NAMESPACE, "namespace of the plugin's Lease"),
    DRIVER_NAME,
    KUBECONFIG,
    ("--plugin-dir", "PLUGIN_DIR", "", "records and DRA socket (default /var/lib/kubelet/plugins/<driver>)"),
    ("--registry-dir", "REGISTRY_DIR", str(REGISTRY_DIR), "where the kubelet looks for plugins"),
    ("--cdi-dir", "CDI_DIR", "/var/run/cdi", "where the container runtime looks for CDI files"),
    ("--cdi-mode", "CDI_MODE", "auto", "auto, nvidia-ctk or builtin: who says what a CUDA container needs"),
    ("--driver-root", "DRIVER_ROOT", "/", "root of the NVIDIA driver's files, as this process sees it"),
    ("--host-driver-root", "HOST_DRIVER_ROOT", "", "the same as the container runtime sees it (default: the same)"),
    ("--dev-root", "DEV_ROOT", "/", "root whose /dev has the GPUs' nodes, as this process sees it"),
    ("--host-dev-root", "HOST_DEV_ROOT", "", "the same as the container runtime sees it (default: the same)"),
    ("--sysfs-root", "SYSFS_ROOT", "/sys", "sysfs"),
    ("--proc-root", "PROC_ROOT", "/proc", "procfs"),
    ("--machine", "MACHINE", "", "machine file: simulate this hardware"),
    ("--machine-root", "MACHINE_ROOT", "", "where to render a simulated machine (default <plugin-dir>/machine)"),
    ("--host-machine-root", "HOST_MACHINE_ROOT", "", "the same as the container runtime sees it (default: the same)"),
    (
        "--machine-nodes",
        "MACHINE_NODES",
        "devices",
        "devices, plain or auto: device nodes or files for a simulated machine",
    ),
    ("--rediscover-seconds", "REDISCOVER_SECONDS", "60", "how often to look at the hardware again"),
    ("--reconcile-seconds", "RECONCILE_SECONDS", "60", "how often to compare records, CDI files and hardware"),
    ("--health-seconds", "HEALTH_SECONDS", "10", "how often to look at the GPUs' health"),
    ("--watch-xids", "WATCH_XIDS", "true", "false: do not hold NVML open for Xid events"),
    HTTP_PORT,
    LOG_FORMAT,
    LOG_LEVEL,
)


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Settings from the command line and the environment; Refused with everything that is wrong with them."""
    values = Values("lanewise-kubeletplugin", _DESCRIPTION, _FLAGS, arguments, environment)
    driver = values.driver()
    plugin_dir = values.path("--plugin-dir", default=PLUGINS_DIR / driver)
    driver_root, dev_root = values.path("--driver-root"), values.path("--dev-root")
    machine_root = values.path("--machine-root", default=plugin_dir / "machine")
    settings = Settings(
        node=_node(values),
        pod_uid=_pod_uid(values),
        namespace=values.namespace(),
        driver=driver,
        kubeconfig=values.optional_file("--kubeconfig"),
        plugin_dir=plugin_dir,
        registry_dir=values.path("--registry-dir"),
        cdi_dir=values.path("--cdi-dir"),
        cdi_mode=values.choice("--cdi-mode", ("auto", "nvidia-ctk", "builtin")),
        driver_root=driver_root,
        host_driver_root=values.path("--host-driver-root", default=driver_root),
        dev_root=dev_root,
        host_dev_root=values.path("--host-dev-root", default=dev_root),
        sysfs_root=values.path("--sysfs-root"),
        proc_root=values.path("--proc-root"),
        machine=values.optional_file("--machine"),
        machine_root=machine_root,
        host_machine_root=values.path("--host-machine-root", default=machine_root),
        machine_nodes=cast("Nodes", values.choice("--machine-nodes", ("devices", "plain", "auto"))),
        rediscover_seconds=values.seconds("--rediscover-seconds", 86400),
        reconcile_seconds=values.seconds("--reconcile-seconds", 86400),
        health_seconds=values.seconds("--health-seconds", 3600),
        watch_xids=values.truth("--watch-xids"),
        http_port=values.http_port(),
        log_format=values.log_format(),
        log_level=values.log_level(),
    )
    values.check()
    return settings


def _node(values: Values) -> str:
    node = values.text("--node-name")
    if not node:
        values.refuse("--node-name", "not given", "name this machine's Node object, by the flag or $NODE_NAME")
    elif not is_dns_subdomain(node):
        values.refuse("--node-name", f"{node!r} is no node name", "use the name that kubectl get nodes shows")
    return node


def _pod_uid(values: Values) -> str | None:
    uid = values.text("--pod-uid")
    if uid and not _INSTANCE.fullmatch(uid):
        values.refuse("--pod-uid", f"{uid!r} is no UID", "take it from the downward API: metadata.uid")
    return uid or None
