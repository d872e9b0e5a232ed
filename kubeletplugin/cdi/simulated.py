"""The content of a simulated GPU's CDI file: nodes under a root of its own, and driver files where a root has some."""

import os

from api.hardware import Gpu, Machine
from api.refusals import Refused
from kubeletplugin.cdi import drivermounts
from kubeletplugin.cdi.builtin import CONTROL_NODES, NO_LEGACY_INJECTION, gpu_node
from kubeletplugin.cdi.driverfiles import DriverFilesCache
from kubeletplugin.cdi.nodes import NodeMissing, Stat, look_at
from kubeletplugin.cdi.roots import Root
from kubeletplugin.cdi.spec import Edits, Mount, merged


class SimulatedContent:
    """Content for a machine that a file describes.

    `root` holds `dev/nvidiaN`: device nodes, or plain files where making nodes was not permitted. `driver`, if there is one,
    holds made-up driver files.
    """

    def __init__(self, root: Root, driver: Root | None = None, *, stat_of: Stat = os.stat) -> None:
        self._root = root
        self._stat = stat_of
        self._driver = driver
        self._files = DriverFilesCache(driver) if driver is not None else None
        self._last: tuple[list[Edits], Edits] | None = None

    def common(self, machine: Machine) -> Edits:
        """Control nodes as far as there are any, and driver files. Refused when a driver root was given and the machine's
        driver is not in it."""
        nodes = (self._node(path) for path in CONTROL_NODES)
        parts = [Edits(env=(NO_LEGACY_INJECTION,)), *(node for node in nodes if node is not None)]
        if self._driver is not None and self._files is not None:
            files = self._files.files(machine.driver.version)
            parts.append(drivermounts.edits(files, self._driver, drivermounts.find_hook(self._driver)))
        last = self._last
        if last is None or last[0] != parts:
            self._last = last = (parts, merged(parts))
        return last[1]  # the very same object, which `CdiFiles` knows to be valid

    def device(self, machine: Machine, gpu: Gpu) -> Edits:  # noqa: ARG002  # the protocol's
        """The GPU's node. Refused when there is none."""
        path = gpu_node(gpu)
        node = self._node(path)
        if node is None:
            remedy = "restart the plugin, which makes the nodes of a simulated machine when it starts"
            raise Refused(NodeMissing(self._root.at(path), "neither a device node nor a file is here", remedy))
        return node

    def _node(self, path: str) -> Edits | None:
        """A plain file in place of a node is mounted read-only."""
        found = look_at(self._root, path, stat_of=self._stat)
        if found is not None:
            return Edits(device_nodes=(found.node,))
        if self._root.at(path).is_file():
            return Edits(mounts=(Mount(self._root.on_host(path), path, drivermounts.FILE_OPTIONS),))
        return None
