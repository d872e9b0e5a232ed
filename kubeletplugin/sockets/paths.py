"""Which names the plugin's sockets have.

Only names: files are bound and removed in `socketfiles`.
"""

import base64
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from api.refusals import BadInput, Reason, Refused, Several

REGISTRY_DIR = Path("/var/lib/kubelet/plugins_registry")
PLUGINS_DIR = Path("/var/lib/kubelet/plugins")

SOCKET_PATH_BYTES = 107
"""Of `sockaddr_un.sun_path`'s 108 the last is the NUL; gRPC refuses more (Case H6, grpc/grpc#8464)."""

TEMPORARY_HEX = 6
"""Random hexadecimal digits behind `temporary_prefix`."""

_POD_UID = re.compile(r"[0-9a-zA-Z][-0-9a-zA-Z]{0,62}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class SocketPaths:
    """Where one plugin instance listens."""

    driver: str
    registration: Path
    """In the kubelet's registry directory, where it looks for plugins."""
    dra: Path
    """In a directory of our own. The kubelet is told this very path, so it has to mean the same on the host."""


def socket_paths(
    driver: str,
    registry_dir: Path = REGISTRY_DIR,
    plugin_dir: Path | None = None,
    *,
    pod_uid: str | None = None,
) -> SocketPaths:
    """The two sockets of an instance; with a pod UID each instance has its own, which a rolling update needs.

    `plugin_dir` is `/var/lib/kubelet/plugins/<driver>` when not given. Refused(BadInput), naming the flag to change, when
    a directory is not absolute or a path would be longer than a socket path can be.
    """
    plugin_dir = plugin_dir or PLUGINS_DIR / driver
    problems: list[Reason] = [
        BadInput(flag, f"{str(directory)!r} is no absolute path", "write the whole path, from / on")
        for flag, directory in (("--registry-dir", registry_dir), ("--plugin-dir", plugin_dir))
        if not directory.is_absolute()
    ]
    if pod_uid is not None and _POD_UID.fullmatch(pod_uid) is None:
        problems.append(BadInput("--pod-uid", f"{pod_uid!r} is no pod UID", "fill it from metadata.uid"))
    if problems:
        raise _refused(problems)
    paths = SocketPaths(
        driver, registry_dir / _registration_name(driver, registry_dir, pod_uid), plugin_dir / dra_name(pod_uid)
    )
    for flag, path in (("--registry-dir", paths.registration), ("--plugin-dir", paths.dra)):
        over = _path_bytes(path.parent, path.name, driver) - SOCKET_PATH_BYTES
        if over > 0:
            problem = f"{path} is {over} bytes longer than the {SOCKET_PATH_BYTES} that a socket path can have"
            problems.append(BadInput(flag, problem, f"use a directory whose path is shorter by {over} bytes or more"))
    if problems:
        raise _refused(problems)
    return paths


def dra_name(pod_uid: str | None) -> str:
    """`dra.sock`, or `dra-<pod UID>.sock`."""
    return f"dra-{pod_uid}.sock" if pod_uid else "dra.sock"


def registration_names(driver: str, pod_uid: str | None) -> tuple[str, ...]:
    """Preferred first. The hashed ones are upstream's for directories too long for the plain one
    (kubeletplugin.RollingUpdateRegistrarSocketFile of k8s.io/dynamic-resource-allocation v0.37)."""
    if pod_uid is None:
        return (f"{driver}-reg.sock",)
    short = _base64(hashlib.sha256(pod_uid.encode()).digest()[:8])
    shortest = _base64(hashlib.sha256(f"{driver}\0{pod_uid}".encode()).digest()[:16])
    return (f"{driver}-{pod_uid}-reg.sock", f"{driver}-{short}-reg.sock", f"dra-{shortest}-reg.sock")


def temporary_prefix(driver: str) -> str:
    """Of the names under which sockets are made before they get their own. The kubelet overlooks names with a leading dot."""
    return f".lw{hashlib.sha256(driver.encode()).hexdigest()[:6]}-"


def ours_in_plugin_dir(driver: str, names: Iterable[str]) -> tuple[str, ...]:
    """Which files of our own directory are named like sockets of ours, this instance's or another's."""
    return tuple(
        name
        for name in names
        if name == "dra.sock" or (name.startswith("dra-") and name.endswith(".sock")) or _is_temporary(driver, name)
    )


def ours_in_registry(driver: str, names: Iterable[str], plugin_names: Iterable[str]) -> tuple[str, ...]:
    """Which files of the kubelet's directory are named like sockets of ours.

    Other drivers live there too, some with names that begin with ours: between driver and `-reg.sock` only a pod UID is
    accepted, and a hash only when `plugin_names`, what lies in our own directory, tells the UID it was made of.
    """
    known = set(registration_names(driver, None))
    for name in plugin_names:
        if name.startswith("dra-") and name.endswith(".sock"):
            known.update(registration_names(driver, name.removeprefix("dra-").removesuffix(".sock")))
    return tuple(name for name in names if name in known or _has_pod_uid(driver, name) or _is_temporary(driver, name))


def _registration_name(driver: str, registry_dir: Path, pod_uid: str | None) -> str:
    names = registration_names(driver, pod_uid)
    fitting = (name for name in names if _path_bytes(registry_dir, name, driver) <= SOCKET_PATH_BYTES)
    return next(fitting, names[-1])


def _path_bytes(directory: Path, name: str, driver: str) -> int:
    """Of the longer of a socket's two names: the one it is made under, and its own."""
    longest = max(len(name.encode()), len(temporary_prefix(driver)) + TEMPORARY_HEX)
    return len(str(directory).encode()) + 1 + longest


def _has_pod_uid(driver: str, name: str) -> bool:
    prefix, suffix = f"{driver}-", "-reg.sock"
    return name.startswith(prefix) and name.endswith(suffix) and bool(_UUID.fullmatch(name[len(prefix) : -len(suffix)]))


def _is_temporary(driver: str, name: str) -> bool:
    prefix = temporary_prefix(driver)
    return name.startswith(prefix) and re.fullmatch(r"[0-9a-f]+", name[len(prefix) :]) is not None


def _base64(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _refused(problems: list[Reason]) -> Refused:
    return Refused(problems[0] if len(problems) == 1 else Several(tuple(problems)))
