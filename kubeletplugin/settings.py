"""The node plugin's settings: each with its flag, its environment variable, its default, and why.

Flags win over the environment. Everything a person can get wrong is checked here, before anything is touched.
"""

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from api.names import GPU_DRIVER, NAMESPACE, checked_driver_name, is_dns_subdomain
from api.refusals import BadInput, Reason, Refused, Several

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
    """None: the pod's service account."""
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
    rediscover_seconds: float
    """How often to look at the hardware again. 60: one pass costs milliseconds, and most changes announce themselves."""
    reconcile_seconds: float
    """How often to compare records, CDI files and hardware. 60: it reads local files; the API is asked about a claim once in
    ten minutes."""
    probe_port: int
    """Port of /healthz and /readyz on all addresses; 0 turns them off."""
    log_format: str
    """`json` for machines, `console` for people."""
    log_level: str


_FLAGS: tuple[tuple[str, str, str | None, str], ...] = (
    # flag, environment variable, default, help
    ("--node-name", "NODE_NAME", None, "name of the Node object of this machine (required)"),
    ("--pod-uid", "POD_UID", "", "UID of the plugin's pod; lets two pods serve during a rolling update"),
    ("--namespace", "NAMESPACE", NAMESPACE, "namespace of the plugin's Lease"),
    ("--driver-name", "DRIVER_NAME", GPU_DRIVER, "name of the DRA driver"),
    ("--kubeconfig", "KUBECONFIG", "", "kubeconfig; without it the pod's service account is used"),
    ("--plugin-dir", "PLUGIN_DIR", "", "records and DRA socket (default /var/lib/kubelet/plugins/<driver>)"),
    ("--registry-dir", "REGISTRY_DIR", "/var/lib/kubelet/plugins_registry", "where the kubelet looks for plugins"),
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
    ("--rediscover-seconds", "REDISCOVER_SECONDS", "60", "how often to look at the hardware again"),
    ("--reconcile-seconds", "RECONCILE_SECONDS", "60", "how often to compare records, CDI files and hardware"),
    ("--probe-port", "PROBE_PORT", "0", "port of /healthz and /readyz; 0 for none"),
    ("--log-format", "LOG_FORMAT", "json", "json or console"),
    ("--log-level", "LOG_LEVEL", "info", "debug, info, warning or error"),
)


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Settings from the command line and the environment; Refused with everything that is wrong with them."""
    parser = argparse.ArgumentParser(prog="lanewise-kubeletplugin", description=__doc__, exit_on_error=False)
    for flag, variable, default, text in _FLAGS:
        parser.add_argument(flag, default=environment.get(variable, default), help=f"{text} [${variable}]")
    try:
        raw, unknown = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise Refused(BadInput("command line", str(error), "see --help")) from error
    values = _Values(raw, environment)
    if unknown:
        values.refuse(unknown[0], "unknown flag", "see --help")
    return values.settings()


class _Values:
    """Reads one value after another and collects what is wrong."""

    def __init__(self, raw: argparse.Namespace, environment: Mapping[str, str]) -> None:
        self._raw, self._environment = raw, environment
        self._wrong: list[Reason] = []

    def refuse(self, source: str, problem: str, remedy: str) -> None:
        self._wrong.append(BadInput(source, problem, remedy))

    def settings(self) -> Settings:
        driver = self._driver()
        plugin_dir = self._path("--plugin-dir", default=Path("/var/lib/kubelet/plugins") / driver)
        driver_root, dev_root = self._path("--driver-root"), self._path("--dev-root")
        machine_root = self._path("--machine-root", default=plugin_dir / "machine")
        settings = Settings(
            node=self._node(),
            pod_uid=self._pod_uid(),
            namespace=self._text("--namespace"),
            driver=driver,
            kubeconfig=self._optional_file("--kubeconfig"),
            plugin_dir=plugin_dir,
            registry_dir=self._path("--registry-dir"),
            cdi_dir=self._path("--cdi-dir"),
            cdi_mode=self._choice("--cdi-mode", ("auto", "nvidia-ctk", "builtin")),
            driver_root=driver_root,
            host_driver_root=self._path("--host-driver-root", default=driver_root),
            dev_root=dev_root,
            host_dev_root=self._path("--host-dev-root", default=dev_root),
            sysfs_root=self._path("--sysfs-root"),
            proc_root=self._path("--proc-root"),
            machine=self._optional_file("--machine"),
            machine_root=machine_root,
            host_machine_root=self._path("--host-machine-root", default=machine_root),
            rediscover_seconds=self._seconds("--rediscover-seconds"),
            reconcile_seconds=self._seconds("--reconcile-seconds"),
            probe_port=self._port("--probe-port"),
            log_format=self._choice("--log-format", ("json", "console")),
            log_level=self._choice("--log-level", ("debug", "info", "warning", "error")),
        )
        if self._wrong:
            raise Refused(self._wrong[0] if len(self._wrong) == 1 else Several(tuple(self._wrong)))
        return settings

    def _text(self, flag: str) -> str:
        return str(getattr(self._raw, flag[2:].replace("-", "_")) or "")

    def _node(self) -> str:
        node = self._text("--node-name")
        if not node:
            self.refuse("--node-name", "not given", "name this machine's Node object, by the flag or $NODE_NAME")
        elif not is_dns_subdomain(node):
            self.refuse("--node-name", f"{node!r} is no node name", "use the name that kubectl get nodes shows")
        return node

    def _pod_uid(self) -> str | None:
        uid = self._text("--pod-uid")
        if uid and not _INSTANCE.fullmatch(uid):
            self.refuse("--pod-uid", f"{uid!r} is no UID", "take it from the downward API: metadata.uid")
        return uid or None

    def _driver(self) -> str:
        try:
            return checked_driver_name(self._text("--driver-name"), source="--driver-name")
        except Refused as refused:
            self._wrong.append(refused.reason)
            return GPU_DRIVER

    def _path(self, flag: str, *, default: Path | None = None) -> Path:
        text = self._text(flag)
        if not text and default is not None:
            return default
        path = Path(text)
        if not path.is_absolute():
            self.refuse(flag, f"{text!r} is no absolute path", "write it from the root, beginning with /")
        return path

    def _optional_file(self, flag: str) -> Path | None:
        text = self._text(flag)
        if not text:
            return None
        path = Path(text)
        if not path.is_file():
            self.refuse(f"{flag} {text}", "no such file", "name a file that exists, or leave the flag out")
        return path

    def _choice(self, flag: str, choices: tuple[str, ...]) -> str:
        text = self._text(flag)
        if text not in choices:
            self.refuse(flag, f"{text!r} is none of {', '.join(choices)}", "use one of them")
        return text

    def _seconds(self, flag: str) -> float:
        text = self._text(flag)
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not 1 <= seconds <= 86400:
            self.refuse(flag, f"{text!r} is no number of seconds from 1 to 86400", "write a number such as 60")
        return seconds

    def _port(self, flag: str) -> int:
        text = self._text(flag)
        if not (text.isascii() and text.isdigit() and int(text) < 65536):
            self.refuse(flag, f"{text!r} is no port", "use a number from 1 to 65535, or 0 for none")
            return 0
        return int(text)
