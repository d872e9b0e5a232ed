"""A program's settings as people give them: by flag or environment variable, and checked before anything is touched.

Flags win over the environment, and all that is wrong is said at once.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from api.names import GPU_DRIVER, checked_driver_name, is_dns_label
from api.refusals import BadInput, Reason, Refused, Several

Flag = tuple[str, str, str | None, str]
"""Flag, environment variable, default (None where there is none), help."""

DRIVER_NAME: Flag = ("--driver-name", "DRIVER_NAME", GPU_DRIVER, "name of the DRA driver")
KUBECONFIG: Flag = (
    "--kubeconfig",
    "KUBECONFIG_FILE",
    "",
    "kubeconfig; without it $KUBECONFIG, the pod's service account, ~/.kube/config",
)
HTTP_PORT: Flag = ("--http-port", "HTTP_PORT", "0", "port of /healthz, /readyz and /metrics; 0 for none")
LOG_FORMAT: Flag = ("--log-format", "LOG_FORMAT", "auto", "json, console, or auto: console in a terminal")
LOG_LEVEL: Flag = ("--log-level", "LOG_LEVEL", "info", "debug, info, warning or error")


class Values:
    """What was given, read one value after another. Every reader notes what is wrong and returns something harmless."""

    def __init__(
        self,
        program: str,
        description: str,
        flags: Sequence[Flag],
        arguments: Sequence[str],
        environment: Mapping[str, str],
    ) -> None:
        """Refused for a command line that cannot be taken apart."""
        parser = argparse.ArgumentParser(prog=program, description=description, exit_on_error=False, allow_abbrev=False)
        for flag, variable, default, text in flags:
            parser.add_argument(flag, default=environment.get(variable, default), help=f"{text} [${variable}]")
        try:
            self._raw, unknown = parser.parse_known_args(arguments)
        except argparse.ArgumentError as error:
            raise Refused(BadInput("command line", str(error), "see --help")) from error
        self._wrong: list[Reason] = []
        if unknown:
            self.refuse(unknown[0], "unknown flag", "see --help")

    def refuse(self, source: str, problem: str, remedy: str) -> None:
        """Note a fault."""
        self._wrong.append(BadInput(source, problem, remedy))

    def check(self) -> None:
        """Refused with all that was found wrong, if anything was."""
        if self._wrong:
            raise Refused(self._wrong[0] if len(self._wrong) == 1 else Several(tuple(self._wrong)))

    def text(self, flag: str) -> str:
        return str(getattr(self._raw, flag[2:].replace("-", "_")) or "")

    def driver(self) -> str:
        try:
            return checked_driver_name(self.text("--driver-name"), source="--driver-name")
        except Refused as refused:
            self._wrong.append(refused.reason)
            return GPU_DRIVER

    def namespace(self) -> str:
        text = self.text("--namespace")
        if not is_dns_label(text):
            self.refuse("--namespace", f"{text!r} is no namespace", "use a name that kubectl get namespaces shows")
        return text

    def path(self, flag: str, *, default: Path | None = None) -> Path:
        """An absolute path; `default` where none is given."""
        text = self.text(flag)
        if not text and default is not None:
            return default
        path = Path(text)
        if not path.is_absolute():
            self.refuse(flag, f"{text!r} is no absolute path", "write it from the root, beginning with /")
        return path

    def optional_file(self, flag: str) -> Path | None:
        text = self.text(flag)
        if text and not Path(text).is_file():
            self.refuse(f"{flag} {text}", "no such file", "name a file that exists, or leave the flag out")
        return Path(text) if text else None

    def choice(self, flag: str, choices: tuple[str, ...]) -> str:
        text = self.text(flag)
        if text not in choices:
            self.refuse(flag, f"{text!r} is none of {', '.join(choices)}", "use one of them")
        return text

    def truth(self, flag: str) -> bool:
        return self.choice(flag, ("true", "false")) == "true"

    def whole(self, flag: str, low: int, high: int) -> int:
        text = self.text(flag)
        if not (text.isascii() and text.isdigit() and len(text) <= 18 and low <= int(text) <= high):
            self.refuse(flag, f"{text!r} is no whole number from {low} to {high}", "write such a number")
            return low
        return int(text)

    def seconds(self, flag: str, high: int) -> float:
        """A time of one second to `high`."""
        text = self.text(flag)
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not 1 <= seconds <= high:
            self.refuse(flag, f"{text!r} is no number of seconds from 1 to {high}", "write a number such as 60")
        return seconds

    def http_port(self) -> int:
        return self.whole("--http-port", 0, 65535)

    def log_format(self) -> str:
        return self.choice("--log-format", ("auto", "json", "console"))

    def log_level(self) -> str:
        return self.choice("--log-level", ("debug", "info", "warning", "error"))
