"""The temporary folder of a sandbox: where it may be, and what of a node lies where in it."""

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from api.names import GPU_DRIVER
from api.refusals import BadInput, Refused
from kubeletplugin.sockets.paths import socket_paths

PREFIX = "lw-demo-"
_UID = "0" * 8 + "-0000" * 3 + "-" + "0" * 12


@dataclass(frozen=True, slots=True)
class NodeFolder:
    """What a node of a real cluster has below /var/lib/kubelet and /var/run."""

    root: Path

    @property
    def registry_dir(self) -> Path:
        """For /var/lib/kubelet/plugins_registry."""
        return self.root / "reg"

    @property
    def plugin_dir(self) -> Path:
        """For /var/lib/kubelet/plugins/gpu.lanewise.dev."""
        return self.root / "plugin"

    @property
    def cdi_dir(self) -> Path:
        """For /var/run/cdi."""
        return self.root / "cdi"

    @property
    def machine_dir(self) -> Path:
        """Where the plugin renders the simulated machine."""
        return self.plugin_dir / "machine"


def make(nodes: Iterable[str], parents: tuple[Path, ...] | None = None) -> Path:
    """A new folder below the first of the parents where we may write, and the paths of these nodes' sockets are short enough.

    Refused with what is the matter with each. By default $TMPDIR and its kin, then /tmp and /var/tmp.
    """
    longest = max(nodes, key=len, default="")
    wrong: list[str] = []
    for parent in parents or (Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")):  # noqa: S108  # mkdtemp is safe
        try:
            why = _why_not(parent, longest)
            if why is None:
                return Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        except OSError as error:
            why = error.strerror or str(error)
        wrong.append(f"{parent}: {why}")
    told = "; ".join(dict.fromkeys(wrong))
    remedy = "set TMPDIR to a folder that you may write to, with a short path"
    raise Refused(BadInput("no place for a temporary folder", told, remedy))


def _why_not(parent: Path, node_name: str) -> str | None:
    """Why the sockets of such a node cannot be below this folder; None when they can."""
    node = NodeFolder(parent.resolve() / (PREFIX + "x" * 8) / node_name)
    try:
        socket_paths(GPU_DRIVER, node.registry_dir, node.plugin_dir, pod_uid=_UID)
    except Refused as refused:
        return refused.reason.what
    return None if os.access(parent, os.W_OK | os.X_OK) else "not writable"
