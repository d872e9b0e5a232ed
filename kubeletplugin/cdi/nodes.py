"""Device nodes as they are on this machine.

Numbers are read from the node, never computed: NVIDIA's major numbers beyond 195 are given out when a module is loaded,
and /dev/nvidiaN is counted otherwise than NVML counts (Case F5).
"""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kubeletplugin.cdi.roots import Root
from kubeletplugin.cdi.spec import DeviceNode

Stat = Callable[[Path], os.stat_result]
"""`os.stat`, or what tests put in its place: making device nodes needs a privilege."""

_EVERYBODY = stat.S_IROTH | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class NodeMissing:
    """A device node that a container needs is not there, or is something else."""

    path: Path
    problem: str
    remedy: str

    @property
    def what(self) -> str:
        return f"{self.path}: {self.problem}"


@dataclass(frozen=True, slots=True)
class FoundNode:
    """A node of the host, ready to be made in a container."""

    node: DeviceNode
    group: int | None
    """Who may use it where it is not open to everybody; the container's process then needs this group."""


def look_at(root: Root, path: str, *, stat_of: Stat = os.stat) -> FoundNode | None:
    """The node at `path` under the root, None where there is no device node. Raises no OSError: what cannot be looked at
    cannot be handed out either."""
    try:
        seen = stat_of(root.at(path))
    except OSError:
        return None
    if stat.S_ISCHR(seen.st_mode):
        kind = "c"
    elif stat.S_ISBLK(seen.st_mode):
        kind = "b"
    else:
        return None
    node = DeviceNode(
        path=path,
        host_path=_unless(path, root.on_host(path)),
        type=kind,
        major=os.major(seen.st_rdev),
        minor=os.minor(seen.st_rdev),
        permissions="rw",  # no m: a container has no business making nodes of its own
    )
    return FoundNode(node, None if seen.st_mode & _EVERYBODY == _EVERYBODY or not seen.st_gid else seen.st_gid)


def _unless(path: str, host_path: str) -> str | None:
    return None if host_path == path else host_path
