"""The content of a real GPU's CDI file, found out without NVIDIA's tools."""

import os
from dataclasses import dataclass
from pathlib import Path

from api.hardware import Gpu, Machine
from api.refusals import Refused
from kubeletplugin.cdi import drivermounts
from kubeletplugin.cdi.driverfiles import DriverFiles, DriverFilesCache
from kubeletplugin.cdi.nodes import FoundNode, NodeMissing, Stat, look_at
from kubeletplugin.cdi.roots import Root
from kubeletplugin.cdi.spec import Edits, Mount, merged

NO_LEGACY_INJECTION = "NVIDIA_VISIBLE_DEVICES=void"
"""Keeps NVIDIA's legacy runtime, where a node has it below, from injecting all GPUs of an image that asks for them."""
_NO_LEGACY_MOUNT = Mount("/dev/null", "/var/run/nvidia-container-devices/void", ("ro", "nosuid", "nodev", "bind"))
"""The same for a runtime that is set to go by mounts, not by the environment (as nvidia-ctk 1.20)."""

_NEEDED = ("/dev/nvidiactl", "/dev/nvidia-uvm")
"""CUDA needs both. The second is often not there after boot, until somebody asks for it."""
_WELCOME = ("/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
CONTROL_NODES = _NEEDED + _WELCOME


@dataclass(frozen=True, slots=True)
class NoMinor:
    """The driver did not say which node is this GPU's."""

    gpu: str

    @property
    def what(self) -> str:
        return f"GPU {self.gpu}: its driver tells no minor number, so there is no knowing which of /dev/nvidia* it is"

    @property
    def remedy(self) -> str:
        return "see whether nvidia-smi -q shows a Minor Number for it; a lost GPU comes back with a reset or a reboot"


def gpu_node(gpu: Gpu) -> str:
    """`/dev/nvidiaN`. Refused where the driver told no N: the index that NVML counts by is not it (Case F5)."""
    if gpu.minor is None:
        raise Refused(NoMinor(f"{gpu.uuid} at {gpu.place.address}"))
    return f"/dev/nvidia{gpu.minor}"


@dataclass(frozen=True, slots=True)
class Places:
    """Where the parts of a real machine are."""

    driver: Root
    """What holds the driver's libraries."""
    dev: Root
    """What holds `dev`."""
    sys: Path = Path("/sys")
    host: Root | None = None
    """The host's own file system, where it is mounted: NVIDIA's toolkit is looked for there first."""


@dataclass(frozen=True, slots=True)
class _Found:
    """All that common edits are made of."""

    nodes: tuple[FoundNode, ...]
    files: DriverFiles
    hook: str | None


class BuiltinContent:
    """Content by our own look at the driver root, /dev and /sys."""

    def __init__(self, places: Places, *, stat_of: Stat = os.stat) -> None:
        self._places = places
        self._stat = stat_of
        self._files = DriverFilesCache(places.driver)
        self._last: tuple[_Found, Edits] | None = None

    def common(self, machine: Machine) -> Edits:
        """Driver files, hooks and control nodes. Refused: no driver files, or a control node missing."""
        nodes = [
            self._node(path, "run nvidia-modprobe -u -c=0 on the node, or start nvidia-persistenced")
            for path in _NEEDED
        ]
        nodes += [node for path in _WELCOME if (node := look_at(self._places.dev, path, stat_of=self._stat))]
        files = self._files.files(machine.driver.version)
        hook = drivermounts.find_hook(self._places.host, self._places.driver)
        found = _Found(tuple(nodes), files, hook)
        last = self._last
        if last is not None and last[0] == found:
            return last[1]  # the very same object, which `CdiFiles` knows to be valid
        edits = merged(
            (
                Edits(env=(NO_LEGACY_INJECTION,), mounts=(_NO_LEGACY_MOUNT,)),
                _edits(nodes),
                drivermounts.edits(files, self._places.driver, hook),
            )
        )
        self._last = (found, edits)
        return edits

    def device(self, machine: Machine, gpu: Gpu) -> Edits:  # noqa: ARG002  # the protocol's
        """The GPU's node, and those for graphics if it has some. Refused: no node, or one that is another GPU's."""
        path = gpu_node(gpu)
        found = self._node(path, "run nvidia-modprobe -c=0 on the node; see dmesg if the GPU fell off the bus")
        if found.node.minor != gpu.minor:
            raise Refused(
                NodeMissing(
                    self._places.dev.at(path),
                    f"has minor number {found.node.minor}, so it is not the node of GPU {gpu.uuid}",
                    f"remove it and run nvidia-modprobe -c={gpu.minor} on the node",
                )
            )
        # Without their group: a runtime makes nodes open to everybody, except in a user namespace, and naming groups would
        # ask for CDI 0.7.0 on every machine that has a render node, which older runtimes do not read.
        graphics = [FoundNode(node.node, None) for node in self._graphics(gpu)]
        return _edits([found, *graphics])

    def _node(self, path: str, remedy: str) -> FoundNode:
        found = look_at(self._places.dev, path, stat_of=self._stat)
        if found is None:
            raise Refused(NodeMissing(self._places.dev.at(path), "no device node here", remedy))
        return found

    def _graphics(self, gpu: Gpu) -> list[FoundNode]:
        """card and render node: by sysfs, which every kernel has; by-path links need udev."""
        directory = self._places.sys / "bus/pci/devices" / str(gpu.place.address) / "drm"
        try:
            names = sorted(entry.name for entry in directory.iterdir() if entry.name.startswith(("card", "renderD")))
        except OSError:
            return []
        found = (look_at(self._places.dev, f"/dev/dri/{name}", stat_of=self._stat) for name in names)
        return [node for node in found if node is not None]


def _edits(nodes: list[FoundNode]) -> Edits:
    return Edits(
        device_nodes=tuple(found.node for found in nodes),
        additional_gids=tuple(sorted({found.group for found in nodes if found.group is not None})),
    )
