"""The content of a real GPU's CDI file, as NVIDIA's own `nvidia-ctk` has it.

The tool knows cases that we leave out (WSL, Tegra, graphics, forward compatibility). It is asked once for all GPUs that the
driver has just named, so that a claim of eight waits as long as one of one, and again only when the driver's files changed.
What it prints is validated like what we write.
"""

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from api.hardware import Gpu, Machine
from api.refusals import Refused
from kubeletplugin.cdi.builtin import CONTROL_NODES, Places, gpu_node
from kubeletplugin.cdi.driverfiles import Fingerprint, fingerprint
from kubeletplugin.cdi.nodes import FoundNode, Stat, look_at
from kubeletplugin.cdi.spec import DeviceNode, Edits, Hook, Mount, edits_of
from kubeletplugin.cdi.validate import Invalid, problems

TIMEOUT_SECONDS = 20.0
"""It takes a fraction of a second on a healthy driver, and seconds where each GPU has to wake up. The kubelet gives up a whole
call after 45 s, and the claim's lock is held meanwhile."""
_KILL_SECONDS = 1.0
"""How long the end of a killed tool is waited for: one that hangs in the driver does not die."""

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
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    process = subprocess.Popen(argv, stdin=nothing, stdout=pipe, stderr=pipe)
    try:
        out, err = process.communicate(timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired as error:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # subprocess itself collects it once it has died
            process.wait(_KILL_SECONDS)
        raise TimeoutError(f"no end after {TIMEOUT_SECONDS:.0f} s") from error
    finally:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    return Ran(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))


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


@dataclass(frozen=True, slots=True)
class GpuNotDescribed:
    """`nvidia-ctk` leaves a GPU out that NVML lists."""

    command: str
    uuid: str
    described: tuple[str, ...]

    @property
    def what(self) -> str:
        return f"{self.command}: it describes {', '.join(self.described)}, not {self.uuid}"

    @property
    def remedy(self) -> str:
        return _REMEDY


_State = tuple[Fingerprint, tuple[FoundNode | None, ...], str | None]
"""What makes the tool say something else: driver files, control nodes (it leaves out those missing), driver version."""


@dataclass(frozen=True, slots=True)
class _Generated:
    state: _State
    common: Edits
    devices: Mapping[str, Edits]
    """By the GPU's UUID."""


class CtkContent:
    """Content by `nvidia-ctk cdi generate`."""

    def __init__(self, program: Path, places: Places, *, run: Run = run_program, stat_of: Stat = os.stat) -> None:
        self._program = program
        self._stat = stat_of
        self._places = places
        self._run = run
        self._last: _Generated | None = None

    def common(self, machine: Machine) -> Edits:
        """What the tool says for every device alike. Refused when it fails, or the machine has no GPU."""
        state, last = self._state(machine), self._last
        if all(gpu.lost for gpu in machine.gpus):
            raise Refused(CtkUnusable(str(self._program), "the machine has no GPU to ask it about"))
        return last.common if last is not None and last.state == state else self._generate(machine, state).common

    def device(self, machine: Machine, gpu: Gpu) -> Edits:
        """What the tool says for this GPU. Refused when the tool fails, leaves it out, or names another GPU's node."""
        state, last = self._state(machine), self._last
        if last is None or last.state != state or gpu.uuid not in last.devices:  # a GPU may have come since
            last = self._generate(machine, state)
        edits = last.devices.get(gpu.uuid)
        if edits is None:
            raise Refused(GpuNotDescribed(self._command, gpu.uuid, tuple(last.devices)))
        if gpu.minor is not None and gpu_node(gpu) not in {node.path for node in edits.device_nodes}:
            problem = f"{gpu.uuid} does not have {gpu_node(gpu)}, the node of this GPU"
            raise Refused(CtkUnusable(self._command, problem))
        return edits

    def _state(self, machine: Machine) -> _State:
        nodes = tuple(look_at(self._places.dev, path, stat_of=self._stat) for path in CONTROL_NODES)
        return fingerprint(self._places.driver), nodes, machine.driver.version

    def _generate(self, machine: Machine, state: _State) -> _Generated:
        document = self._document(machine)
        try:
            devices = {device["name"]: edits_of(device["containerEdits"]) for device in document["devices"]}
            common = edits_of(document.get("containerEdits") or {})
        except ValueError as error:  # valid, and nothing that we would pass on
            raise Refused(CtkUnusable(self._command, str(error))) from error
        on_host = {uuid: self._on_host(edits) for uuid, edits in devices.items()}
        self._last = generated = _Generated(state, self._on_host(common), on_host)
        return generated

    def _document(self, machine: Machine) -> dict[str, Any]:
        command = self._command
        try:
            ran = self._run(self._argv(machine))
        except OSError as error:
            raise Refused(CtkUnusable(command, error.strerror or str(error))) from error
        if ran.code != 0:
            lines = ran.stderr.strip().splitlines()
            raise Refused(CtkUnusable(command, f"exit code {ran.code}: {lines[-1] if lines else 'it says no more'}"))
        try:
            document = json.loads(ran.stdout)
        except (ValueError, RecursionError) as error:
            raise Refused(CtkUnusable(command, f"it printed no JSON: {error}")) from error
        faults = problems(document)
        if faults:
            raise Refused(Invalid(f"what {command} printed", faults, _REMEDY))
        checked: dict[str, Any] = document
        return checked

    def _argv(self, machine: Machine) -> tuple[str, ...]:
        return (
            str(self._program),
            "cdi",
            "generate",
            "--format=json",
            "--vendor=lanewise.dev",  # only the edits are used; our own names go around them
            "--class=gpu",
            # Not `all`, which ends with the first that is lost: those that NVML has just answered for.
            *(f"--device-id={gpu.uuid}" for gpu in machine.gpus if not gpu.lost),
            "--device-name-strategy=uuid",
            "--no-all-device",
            f"--driver-root={self._places.driver.seen}",
            f"--dev-root={self._places.dev.seen}",
            f"--nvidia-cdi-hook-path={_HOOK}",
        )

    @property
    def _command(self) -> str:
        return f"{self._program} cdi generate"

    def _on_host(self, edits: Edits) -> Edits:
        """With host paths as the runtime sees them: the tool saw the roots where they are mounted for us."""
        return replace(
            edits,
            device_nodes=tuple(self._node_on_host(node) for node in edits.device_nodes),
            mounts=tuple(self._mount_on_host(mount) for mount in edits.mounts),
            hooks=tuple(self._hook_on_host(hook) for hook in edits.hooks),
        )

    def _node_on_host(self, node: DeviceNode) -> DeviceNode:
        host_path = self._host_path(node.host_path or node.path)
        return replace(node, host_path=host_path if host_path != node.path else None)

    def _mount_on_host(self, mount: Mount) -> Mount:
        return replace(mount, host_path=self._host_path(mount.host_path))

    def _hook_on_host(self, hook: Hook) -> Hook:
        """The arguments name paths in the container, but for the driver root, and for links in `/dev`: of these nvidia-ctk
        1.20 forgets to take the root away that it was given."""
        words = []
        for before, word in zip(("", *hook.args), hook.args, strict=False):
            target, colons, link = word.partition("::")
            if before == "--driver-root":
                words.append(self._host_path(word))
            elif before == "--link" and colons:
                words.append(f"{target}::{self._without_root(link)}")
            else:
                words.append(word)
        return replace(hook, args=tuple(words))

    def _without_root(self, seen: str) -> str:
        below = self._places.dev.at("/dev")
        path = PurePosixPath(seen)
        return f"/dev/{path.relative_to(below)}" if path.is_relative_to(below) else seen

    def _host_path(self, seen: str) -> str:
        """By the innermost of the two roots that holds it: one may be `/`, or lie in the other."""
        roots = sorted((self._places.dev, self._places.driver), key=lambda root: len(root.seen.parts), reverse=True)
        for root in roots:
            host_path = root.host_path_of(seen)
            if host_path is not None:
                return host_path
        return seen
