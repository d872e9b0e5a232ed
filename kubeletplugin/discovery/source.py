"""What every source of hardware answers, with the words that tell a device still to come from one that will not."""

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Protocol

from api.hardware import Gpu, LeftOut, Machine
from api.pci import PciAddress
from kubeletplugin.discovery.sysfs import NvidiaFunction

NO_DRIVER_BOUND = "no driver bound"
NOT_LISTED = "the driver has it, but NVML does not list it"
_AWAITED = frozenset({NO_DRIVER_BOUND, NOT_LISTED})
_BOUND_TO = "bound to the driver "
_TWIN = "is reported for several GPUs"
NVML_ERROR = "NVML: "
"""What stands before NVML's words in the reason why a GPU is left out."""
LOST = f"{NVML_ERROR}GPU is lost"
"""The words of nvmlErrorString for NVML_ERROR_GPU_IS_LOST."""


class Source(Protocol):
    """Where a node's hardware is read from."""

    def discover(self) -> Machine:
        """The hardware at this moment, sorted by PCI address; equal hardware gives equal answers.

        Raises Refused with the reason when there is nothing to say yet, such as a driver that is still being installed.
        """


@dataclass(frozen=True, slots=True)
class NotThereYet:
    """sysfs shows NVIDIA's functions, but NVML lists no GPU (Case I6: some nodes are so for a while after boot)."""

    functions: tuple[PciAddress, ...]

    @property
    def what(self) -> str:
        return f"NVML lists no GPU, but sysfs shows {', '.join(map(str, self.functions))}"

    @property
    def remedy(self) -> str:
        return "the plugin looks again by itself; if it stays so, see dmesg for what the NVIDIA driver says"


def is_awaited(item: LeftOut) -> bool:
    """Whether a GPU was left out that the driver may still bring: worth another look soon."""
    return item.why in _AWAITED


def is_lost(item: LeftOut) -> bool:
    """Whether a GPU was left out because it does not answer."""
    return item.why == LOST or is_awaited(item)


def is_given_away(item: LeftOut) -> bool:
    """Whether a GPU was left out because it is somebody else's, or which one it is cannot be told."""
    return item.why.startswith(_BOUND_TO) or _TWIN in item.why


def label_of(error: str) -> str:
    """NVML's words as a label value: `unknown-error`."""
    return re.sub(r"[^a-z0-9]+", "-", error.lower())[:63].strip("-") or "error"


def unseen(functions: Iterable[NvidiaFunction], seen: frozenset[PciAddress]) -> tuple[LeftOut, ...]:
    """The GPUs that sysfs shows and NVML does not, each with why. A hypervisor's vGPU functions are nobody's loss."""
    return tuple(
        LeftOut(str(function.place.address), _why_unseen(function.driver))
        for function in functions
        if function.place.address not in seen and not function.is_virtual
    )


def _why_unseen(driver: str | None) -> str:
    match driver:
        case None:
            return NO_DRIVER_BOUND
        case "nvidia":
            return NOT_LISTED
        case _:
            return f"{_BOUND_TO}{driver}, not to nvidia"


def without_twins(gpus: Iterable[Gpu]) -> tuple[tuple[Gpu, ...], tuple[LeftOut, ...]]:
    """The GPUs that are the only one with their address, UUID and minor, with the others left out.

    Two devices with one minor are both left out (Case F5): whichever of them was meant, the other would be another
    tenant's GPU.
    """
    kept = tuple(sorted(gpus, key=lambda gpu: (gpu.place.address, gpu.uuid)))
    twins: dict[PciAddress, str] = {}
    keys: tuple[tuple[str, Callable[[Gpu], Hashable]], ...] = (
        ("PCI address", lambda gpu: gpu.place.address),
        ("UUID", lambda gpu: gpu.uuid),
        ("device minor", lambda gpu: gpu.minor),
    )
    for noun, key in keys:
        groups: dict[Hashable, list[Gpu]] = {}
        for gpu in kept:
            groups.setdefault(key(gpu), []).append(gpu)
        for value, group in groups.items():
            if value is not None and len(group) > 1:
                shared = ", ".join(str(gpu.place.address) for gpu in group)
                for gpu in group:
                    twins.setdefault(gpu.place.address, f"{noun} {value} {_TWIN}: {shared}")
    left_out = tuple(LeftOut(str(address), why) for address, why in sorted(twins.items()))
    return tuple(gpu for gpu in kept if gpu.place.address not in twins), left_out
