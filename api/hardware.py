"""What a node has: its GPUs, its NICs, and what could not be used."""

from dataclasses import dataclass

from api.health import LOST, Ailment
from api.pci import Place


@dataclass(frozen=True, slots=True)
class Gpu:
    """One physical GPU. What the driver would not tell is None, never a made-up value."""

    place: Place
    uuid: str
    minor: int | None = None
    """N of /dev/nvidiaN; not the index that NVML counts by (Case F5)."""
    product_name: str | None = None
    brand: str | None = None
    architecture: str | None = None
    compute_capability: str | None = None
    """`9.0`"""
    memory_bytes: int | None = None
    """What NVML says is there in all. None on unified memory, where it says nothing (Case L8)."""
    mig_enabled: bool | None = None
    """None where the card knows no MIG."""
    ailments: tuple[Ailment, ...] = ()
    """The gravest first; none while nothing is known to be the matter, which is not to say that it is well."""

    @property
    def lost(self) -> Ailment | None:
        """Why it does not answer; None where it does. What else is known of a lost GPU is from before."""
        return next((ailment for ailment in self.ailments if ailment.kind == LOST), None)


@dataclass(frozen=True, slots=True)
class Nic:
    """One network function: Ethernet, InfiniBand or EFA."""

    place: Place
    kind: str
    """`ethernet` or `infiniband`, by PCI class."""
    vendor: str | None = None
    device: str | None = None
    net_names: tuple[str, ...] = ()
    rdma_names: tuple[str, ...] = ()
    physical_function: str | None = None
    """The PCI address of the physical function, for a virtual one."""


@dataclass(frozen=True, slots=True)
class Driver:
    """The versions that the GPU driver reports, as it writes them."""

    version: str | None = None
    """`580.105.08`; no semantic version."""
    cuda_version: str | None = None
    """The highest CUDA it serves, `13.0`."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A device, or a part of what should be known of it, that was found but cannot be used."""

    what: str
    """A PCI address, a device name, or `driver`."""
    why: str


@dataclass(frozen=True, slots=True)
class Machine:
    """A node's hardware at one moment, sorted by PCI address. Equal machines are the same hardware in the same state: no times
    in here but those at which ailments began."""

    gpus: tuple[Gpu, ...] = ()
    nics: tuple[Nic, ...] = ()
    driver: Driver = Driver()
    boot_id: str = ""
    """/proc/sys/kernel/random/boot_id"""
    left_out: tuple[LeftOut, ...] = ()
    simulated: bool = False
