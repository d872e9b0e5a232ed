"""Whether the kubelet finds the plugin: its directories, and sockets of ours that answer in them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from api.refusals import Reason, Refused
from cli.doctor.findings import Finding, failure, ok
from cli.doctor.mounts import VOLATILE, Mount, find, names_in
from kubeletplugin.sockets.paths import ours_in_registry, socket_paths
from kubeletplugin.sockets.probe import probe

PROBE_SECONDS = 5.0
_POD_UID = "00000000-0000-0000-0000-000000000000"
SEE_PLUGIN = "see the plugin's pod on this node (kubectl -n lanewise-system get pods -o wide) and its log"


@dataclass(frozen=True, slots=True)
class Sockets:
    """What was seen of the kubelet's directories and the plugin's sockets."""

    registry_dir: Path
    registry_is_there: bool
    plugin_dir: Path
    plugin_mount: Mount | None
    too_long: Reason | None
    """Why a socket's path does not fit (Case H6)."""
    answers: tuple[tuple[str, Reason | None], ...] = ()
    """Each registration socket of ours, and why it does not answer; two of them while a rolling update lasts (Case H4)."""


def look(driver: str, registry_dir: Path, plugin_dir: Path, proc_root: Path) -> Sockets:
    """Look, and ask each socket of ours."""
    too_long: Reason | None = None
    try:
        socket_paths(driver, registry_dir, plugin_dir, pod_uid=_POD_UID)
    except Refused as refused:
        too_long = refused.reason
    names = ours_in_registry(driver, names_in(registry_dir), names_in(plugin_dir))
    asked = sorted(name for name in names if not name.startswith("."))  # dotted ones are being made
    return Sockets(
        registry_dir=registry_dir,
        registry_is_there=registry_dir.is_dir(),
        plugin_dir=plugin_dir,
        plugin_mount=find(plugin_dir, proc_root) if plugin_dir.is_dir() else None,
        too_long=too_long,
        answers=tuple((name, probe(registry_dir / name, PROBE_SECONDS)) for name in asked),
    )


def judge(seen: Sockets) -> Iterator[Finding]:
    """What is to be said of them."""
    if seen.too_long is not None:
        yield failure("sockets", seen.too_long.what, seen.too_long.remedy)
    if not seen.registry_is_there:
        what = f"{seen.registry_dir} is not there: no kubelet looks for plugins in it"
        yield failure("sockets", what, "name the kubelet's directory with --registry-dir, or run this on a node")
    elif not seen.answers:
        yield failure("sockets", f"no plugin of ours has a socket in {seen.registry_dir}", SEE_PLUGIN)
    for name, reason in seen.answers:
        if reason is None:
            yield ok("sockets", f"{name} answers as the kubelet needs it")
        else:
            yield failure("sockets", reason.what, reason.remedy)
    mount = seen.plugin_mount
    if mount is not None and mount.kind in VOLATILE:
        what = f"{seen.plugin_dir} is on {mount.kind}: the records of prepared claims do not survive a reboot"
        yield failure("records", what, "keep it on a disk: --plugin-dir")
    elif mount is not None:
        yield ok("records", f"{seen.plugin_dir} is on {mount.kind}")
