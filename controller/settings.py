"""The controller's settings: each with its flag, its environment variable, its default, and why.

Flags win over the environment. Everything a person can get wrong is checked here, before anything is touched.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from api.names import GPU_DRIVER, NAMESPACE, checked_driver_name, is_dns_label
from api.refusals import BadInput, Reason, Refused, Several


@dataclass(frozen=True, slots=True)
class Settings:
    """What one run of the controller was told."""

    driver: str = GPU_DRIVER
    """The DRA driver's name, the same as the plugins'. A second name lets two installations live in one cluster."""
    namespace: str = NAMESPACE
    """Where the plugins keep their Leases, and the controller its own."""
    kubeconfig: Path | None = None
    """None: the pod's service account."""
    stale_seconds: float = 40.0
    """A Lease not renewed for this long is silence. Four renewals, and what the kubelet itself is granted before its node is
    called not ready. Shorter taints devices because of a busy API server; longer lets pods land where they must wait."""
    allow_shared_ownership: bool = False
    """Publish nodes that NVIDIA's device plugin or another DRA driver serves too. Off, because the same GPU is then handed
    out twice; on only while moving from one to the other, with pods kept apart by other means."""
    leader_election: bool = True
    """Off only where it is certain that one controller runs: two without it undo each other's writes."""
    identity: str = ""
    """Of this candidate for leadership; the pod's name. Something of chance is added."""
    workers: int = 4
    """Nodes worked on at the same time. A pass is mostly waiting for the API server."""
    probe_port: int = 0
    """Port of /healthz and /readyz on all addresses; 0 turns them off."""
    log_format: str = "json"
    """`json` for machines, `console` for people."""
    log_level: str = "info"


_FLAGS: tuple[tuple[str, str, str, str], ...] = (
    # flag, environment variable, default, help
    ("--driver-name", "DRIVER_NAME", GPU_DRIVER, "name of the DRA driver"),
    ("--namespace", "NAMESPACE", NAMESPACE, "namespace of the plugins' Leases, and of the controller's"),
    (
        "--kubeconfig",
        "KUBECONFIG_FILE",
        "",
        "kubeconfig; without it $KUBECONFIG, the pod's service account, ~/.kube/config",
    ),
    ("--stale-seconds", "STALE_SECONDS", "40", "a plugin silent for longer has its devices tainted"),
    (
        "--allow-shared-ownership",
        "ALLOW_SHARED_OWNERSHIP",
        "false",
        "true: publish nodes that another driver or device plugin serves too",
    ),
    ("--leader-election", "LEADER_ELECTION", "true", "false: write without asking who leads"),
    ("--identity", "POD_NAME", "lanewise-controller", "name of this candidate for leadership"),
    ("--workers", "WORKERS", "4", "nodes worked on at the same time"),
    ("--probe-port", "PROBE_PORT", "0", "port of /healthz and /readyz; 0 for none"),
    ("--log-format", "LOG_FORMAT", "json", "json or console"),
    ("--log-level", "LOG_LEVEL", "info", "debug, info, warning or error"),
)


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Settings from the command line and the environment; Refused with everything that is wrong with them."""
    parser = argparse.ArgumentParser(
        prog="lanewise-controller",
        description="Publishes the GPUs that the nodes' plugins report as ResourceSlices.",
        exit_on_error=False,
        allow_abbrev=False,
    )
    for flag, variable, default, text in _FLAGS:
        parser.add_argument(flag, default=environment.get(variable, default), help=f"{text} [${variable}]")
    try:
        raw, unknown = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise Refused(BadInput("command line", str(error), "see --help")) from error
    values = _Values(raw)
    if unknown:
        values.refuse(unknown[0], "unknown flag", "see --help")
    return values.settings()


class _Values:
    """Reads one value after another and collects what is wrong."""

    def __init__(self, raw: argparse.Namespace) -> None:
        self._raw = raw
        self._wrong: list[Reason] = []

    def refuse(self, source: str, problem: str, remedy: str) -> None:
        self._wrong.append(BadInput(source, problem, remedy))

    def settings(self) -> Settings:
        settings = Settings(
            driver=self._driver(),
            namespace=self._label("--namespace"),
            kubeconfig=self._file("--kubeconfig"),
            stale_seconds=self._seconds("--stale-seconds"),
            allow_shared_ownership=self._yes("--allow-shared-ownership"),
            leader_election=self._yes("--leader-election"),
            identity=self._text("--identity"),
            workers=self._whole("--workers", 1, 64),
            probe_port=self._whole("--probe-port", 0, 65535),
            log_format=self._choice("--log-format", ("json", "console")),
            log_level=self._choice("--log-level", ("debug", "info", "warning", "error")),
        )
        if self._wrong:
            raise Refused(self._wrong[0] if len(self._wrong) == 1 else Several(tuple(self._wrong)))
        return settings

    def _text(self, flag: str) -> str:
        return str(getattr(self._raw, flag[2:].replace("-", "_")) or "")

    def _driver(self) -> str:
        try:
            return checked_driver_name(self._text("--driver-name"), source="--driver-name")
        except Refused as refused:
            self._wrong.append(refused.reason)
            return GPU_DRIVER

    def _label(self, flag: str) -> str:
        text = self._text(flag)
        if not is_dns_label(text):
            self.refuse(flag, f"{text!r} is no namespace", "use a name that kubectl get namespaces shows")
        return text

    def _file(self, flag: str) -> Path | None:
        text = self._text(flag)
        if text and not Path(text).is_file():
            self.refuse(f"{flag} {text}", "no such file", "name a file that exists, or leave the flag out")
        return Path(text) if text else None

    def _choice(self, flag: str, choices: tuple[str, ...]) -> str:
        text = self._text(flag)
        if text not in choices:
            self.refuse(flag, f"{text!r} is none of {', '.join(choices)}", "use one of them")
        return text

    def _yes(self, flag: str) -> bool:
        return self._choice(flag, ("true", "false")) == "true"

    def _whole(self, flag: str, low: int, high: int) -> int:
        text = self._text(flag)
        if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
            self.refuse(flag, f"{text!r} is no whole number from {low} to {high}", "write such a number")
            return low
        return int(text)

    def _seconds(self, flag: str) -> float:
        text = self._text(flag)
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not 1 <= seconds <= 3600:
            self.refuse(flag, f"{text!r} is no number of seconds from 1 to 3600", "write a number such as 40")
        return seconds
