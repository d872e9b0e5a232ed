"""The content of a real GPU's CDI file, as NVIDIA's own `nvidia-ctk` has it.

The tool knows cases that we leave out (WSL, Tegra, graphics, forward compatibility). It is asked for one GPU at a time, and
again only when the driver's files changed. What it prints is validated like what we write.
"""

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from api.hardware import Gpu, Machine
from api.refusals import Refused
from kubeletplugin.cdi.builtin import CONTROL_NODES, Places, gpu_node
from kubeletplugin.cdi.driverfiles import Fingerprint, fingerprint
from kubeletplugin.cdi.nodes import FoundNode, Stat, look_at
from kubeletplugin.cdi.spec import DeviceNode, Edits, Mount, edits_of
from kubeletplugin.cdi.validate import Invalid, problems

TIMEOUT_SECONDS = 30.0
"""It takes a fraction of a second on a healthy driver; the kubelet gives a whole call some minutes."""

_HOOK = "/usr/bin/nvidia-cdi-hook"
_REMEDY = "run the command on the node to see all it says, or set --cdi-mode=builtin"


@dataclass(frozen=True, slots=True)
class Ran:
    """A program that ended."""

    code: int
    stdout: str
    stderr: str


Run = Callable[[Sequence[str]], Ran]
"""Runs a program and waits for it. Raises OSError when it cannot be started, or does not end in time (TimeoutError)."""


def run_program(argv: Sequence[str]) -> Ran:
    """See `Run`."""
    try:
        done = subprocess.run(argv, capture_output=True, timeout=TIMEOUT_SECONDS, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"no end after {TIMEOUT_SECONDS:.0f} s") from error
    return Ran(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


@dataclass(frozen=True, slots=True)
class CtkUnusable:
    """`nvidia-ctk` gave nothing to use."""

    command: str
    problem: str

    @property
    def what(self) -> str:
        return f"{self.command}: {self.problem}"

    @property
    def remedy(self) -> str:
        return _REMEDY


_State = tuple[Fingerprint, tuple[FoundNode | None, ...], str | None]
"""What makes the tool say something else: driver files, control nodes (it leaves out those missing), driver version."""


@dataclass(frozen=True, slots=True)
class _Generated:
    state: _State
    common: Edits
    device: Edits


class CtkContent:
    """Content by `nvidia-ctk cdi generate`."""

    def __init__(self, program: Path, places: Places, *, run: Run = run_program, stat_of: Stat = os.stat) -> None:
        self._program = program
        self._stat = stat_of
        self._places = places
        self._run = run
        self._last: dict[str, _Generated] = {}

    def common(self, machine: Machine) -> Edits:
        """What the tool says for every device alike: asked for with any GPU it can describe, so that one that is lost
        does not stop the others. Refused when there is none."""
        state = self._state(machine)
        for gpu in machine.gpus:
            last = self._last.get(gpu.uuid)
            if last is not None and last.state == state:
                return last.common
        refused: Refused | None = None
        for gpu in machine.gpus:
            try:
                return self._generated(gpu, state).common
            except Refused as error:
                refused = error
        raise refused or Refused(CtkUnusable(str(self._program), "the machine has no GPU to ask it about"))

    def device(self, machine: Machine, gpu: Gpu) -> Edits:
        """What the tool says for this GPU. Refused when the tool fails, or names another GPU's node."""
        edits = self._generated(gpu, self._state(machine)).device
        if gpu.minor is not None and gpu_node(gpu) not in {node.path for node in edits.device_nodes}:
            raise Refused(
                CtkUnusable(self._command(gpu), f"its device does not have {gpu_node(gpu)}, the node of this GPU")
            )
        return edits

    def _state(self, machine: Machine) -> _State:
        nodes = tuple(look_at(self._places.dev, path, stat_of=self._stat) for path in CONTROL_NODES)
        return fingerprint(self._places.driver), nodes, machine.driver.version

    def _generated(self, gpu: Gpu, state: _State) -> _Generated:
        last = self._last.get(gpu.uuid)
        if last is not None and last.state == state:
            return last
        document = self._document(gpu)
        try:
            common, device = _read(document, gpu.uuid)
        except ValueError as error:
            raise Refused(CtkUnusable(self._command(gpu), str(error))) from error
        generated = _Generated(state, self._on_host(common), self._on_host(device))
        self._last[gpu.uuid] = generated
        return generated

    def _document(self, gpu: Gpu) -> dict[str, Any]:
        command = self._command(gpu)
        try:
            ran = self._run(self._argv(gpu))
        except OSError as error:
            raise Refused(CtkUnusable(command, error.strerror or str(error))) from error
        if ran.code != 0:
            lines = ran.stderr.strip().splitlines()
            raise Refused(CtkUnusable(command, f"exit code {ran.code}: {lines[-1] if lines else 'it says no more'}"))
        try:
            document = json.loads(ran.stdout)
        except ValueError as error:
            raise Refused(CtkUnusable(command, f"it printed no JSON: {error}")) from error
        faults = problems(document)
        if faults:
            raise Refused(Invalid(f"what {command} printed", faults, _REMEDY))
        checked: dict[str, Any] = document
        return checked

    def _argv(self, gpu: Gpu) -> tuple[str, ...]:
        return (
            str(self._program),
            "cdi",
            "generate",
            "--format=json",
            "--vendor=lanewise.dev",  # only the edits are used; our own names go around them
            "--class=gpu",
            f"--device-id={gpu.uuid}",
            "--device-name-strategy=uuid",
            "--no-all-device",
            f"--driver-root={self._places.driver.seen}",
            f"--dev-root={self._places.dev.seen}",
            f"--nvidia-cdi-hook-path={_HOOK}",
        )

    def _command(self, gpu: Gpu) -> str:
        return f"{self._program} cdi generate --device-id={gpu.uuid}"

    def _on_host(self, edits: Edits) -> Edits:
        """With host paths as the runtime sees them: the tool saw the roots where they are mounted for us."""
        return replace(
            edits,
            device_nodes=tuple(self._node_on_host(node) for node in edits.device_nodes),
            mounts=tuple(self._mount_on_host(mount) for mount in edits.mounts),
        )

    def _node_on_host(self, node: DeviceNode) -> DeviceNode:
        host_path = self._host_path(node.host_path or node.path)
        return replace(node, host_path=host_path if host_path != node.path else None)

    def _mount_on_host(self, mount: Mount) -> Mount:
        return replace(mount, host_path=self._host_path(mount.host_path))

    def _host_path(self, seen: str) -> str:
        """By the innermost of the two roots that holds it: one may be `/`, or lie in the other."""
        roots = sorted((self._places.dev, self._places.driver), key=lambda root: len(root.seen.parts), reverse=True)
        for root in roots:
            host_path = root.host_path_of(seen)
            if host_path is not None:
                return host_path
        return seen


def _read(document: dict[str, Any], uuid: str) -> tuple[Edits, Edits]:
    """Common and device edits of a valid document. Raises ValueError with the reason when it is not about this GPU."""
    devices = [device for device in document["devices"] if device["name"] == uuid]
    if not devices:
        raise ValueError(f"it describes {', '.join(device['name'] for device in document['devices'])}, not {uuid}")
    return edits_of(document.get("containerEdits") or {}), edits_of(devices[0]["containerEdits"])
