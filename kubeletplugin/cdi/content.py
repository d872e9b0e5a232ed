"""What goes into a claim's CDI file, from whichever source knows it."""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from api.hardware import Gpu, Machine
from api.refusals import BadInput, Refused
from kubeletplugin.cdi import environment, naming
from kubeletplugin.cdi.builtin import BuiltinContent, Places
from kubeletplugin.cdi.ctk import CtkContent, Run, run_program
from kubeletplugin.cdi.nodes import Stat
from kubeletplugin.cdi.spec import CdiDevice, Edits, Spec, merged

MODES = ("auto", "nvidia-ctk", "builtin")

_CTK = "/usr/bin/nvidia-ctk"


class Content(Protocol):
    """What containers need for their GPUs. Both methods raise Refused, and are cheap when nothing changed."""

    def common(self, machine: Machine) -> Edits:
        """Whatever GPUs a container gets, once."""

    def device(self, machine: Machine, gpu: Gpu) -> Edits:
        """For this GPU."""


@dataclass(frozen=True, slots=True)
class ClaimDevice:
    """A device of a claim."""

    name: str
    """Its name in the pool: `gpu-65-00-0`."""
    gpu: Gpu
    share_id: str | None = None


@dataclass(frozen=True, slots=True)
class OneNodeTwoGpus:
    """Two GPUs with one device node: whoever is given it might get the other's."""

    minor: int
    gpus: tuple[str, ...]

    @property
    def what(self) -> str:
        return f"/dev/nvidia{self.minor} is the node of {' and of '.join(self.gpus)}, by what the driver says of both"

    @property
    def remedy(self) -> str:
        return "compare the Minor Number of both in nvidia-smi -q; a reboot of the node or a reload of the driver renews them"


def choose(
    mode: str,
    places: Places,
    *,
    which: Callable[[str], str | None] = shutil.which,
    run: Run = run_program,
    stat_of: Stat = os.stat,
) -> Content:
    """The source for a real machine, by `--cdi-mode`. Refused (BadInput): no such mode, or the tool asked for is not there.

    `auto` takes nvidia-ctk where the host, the driver root or the PATH has it, and our own otherwise.
    """
    if mode not in MODES:
        raise Refused(BadInput("--cdi-mode", f"{mode!r} is no mode", f"use one of {', '.join(MODES)}"))
    if mode == "builtin":
        return BuiltinContent(places, stat_of=stat_of)
    program = _find_ctk(places, which)
    if program is not None:
        return CtkContent(program, places, run=run, stat_of=stat_of)
    if mode == "auto":
        return BuiltinContent(places, stat_of=stat_of)
    looked = ", ".join(str(root.at(_CTK)) for root in (places.host, places.driver) if root is not None)
    problem = f"nvidia-ctk was asked for, and is neither at {looked} nor on the PATH"
    raise Refused(BadInput("--cdi-mode", problem, "install the NVIDIA Container Toolkit, or use auto or builtin"))


def claim_spec(driver: str, uid: str, devices: Sequence[ClaimDevice], machine: Machine, content: Content) -> Spec:
    """The CDI file of a claim. Raises Refused with the reason when one of its devices cannot be handed out."""
    for device in devices:
        _check_node_is_its_own(device.gpu, machine)
    return Spec(
        kind=naming.kind(driver),
        devices=tuple(
            CdiDevice(
                naming.device_name(uid, device.name, device.share_id),
                merged(
                    (
                        content.device(machine, device.gpu),
                        Edits(
                            env=environment.of_device(
                                device.name, uuid=device.gpu.uuid, product=device.gpu.product_name
                            )
                        ),
                    )
                ),
            )
            for device in devices
        ),
        edits=content.common(machine),
    )


def _check_node_is_its_own(gpu: Gpu, machine: Machine) -> None:
    """Case F5: the wrong node is another tenant's GPU."""
    if gpu.minor is None:
        return
    others = tuple(other.uuid for other in machine.gpus if other.minor == gpu.minor and other.uuid != gpu.uuid)
    if others:
        raise Refused(OneNodeTwoGpus(gpu.minor, (gpu.uuid, *others)))


def _find_ctk(places: Places, which: Callable[[str], str | None]) -> Path | None:
    for root in (places.host, places.driver):
        path = root.resolve(_CTK) if root is not None else None
        if root is not None and path is not None and os.access(root.at(path), os.X_OK):
            return root.at(path)
    found = which("nvidia-ctk")
    return Path(found) if found else None
