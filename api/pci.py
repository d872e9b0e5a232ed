"""PCI addresses, and the chain of bridges above a device.

Only the shape of a tree is known here; reading it from sysfs is `kubeletplugin.discovery.sysfs`.
"""

import re
from dataclasses import dataclass

_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)
_STANDARD_DOMAIN_MAX = 0xFFFF


@dataclass(frozen=True, slots=True, order=True)
class PciAddress:
    """A function on the PCI bus. Sorts as the addresses read."""

    domain: int
    bus: int
    device: int
    function: int

    @classmethod
    def parse(cls, text: str) -> "PciAddress":
        """Read `0000:65:00.0`, with the domain left out, or as NVML writes it (`00000000:65:00.0`, upper case).

        Raises ValueError. Domains above ffff exist (Intel VMD), so up to eight digits are taken.
        """
        match = _ADDRESS.fullmatch(text.strip())
        if match is None or int(match[3], 16) > 0x1F:
            raise ValueError(f"{text!r} is no PCI address; one looks like 0000:65:00.0")
        return cls(int(match[1] or "0", 16), int(match[2], 16), int(match[3], 16), int(match[4]))

    def __str__(self) -> str:
        """As sysfs writes it: lower case, at least four digits of domain."""
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.{self.function:x}"

    @property
    def has_standard_form(self) -> bool:
        """Whether the address fits `resource.kubernetes.io/pciBusID`, which allows four digits of domain."""
        return self.domain <= _STANDARD_DOMAIN_MAX


@dataclass(frozen=True, slots=True)
class Place:
    """Where a device sits."""

    address: PciAddress
    root: str | None = None
    """The root complex as sysfs names it, `pci0000:15`; None where the path shows none."""
    root_is_standard: bool = False
    """Whether the root stands directly below /sys/devices. Upstream's helper publishes only such roots, so that
    `resource.kubernetes.io/pcieRoot` of two drivers agree; Hyper-V's paths have it deeper (Case C1)."""
    bridges: tuple[PciAddress, ...] = ()
    """Bridges between root complex and device, outermost (the root port) first."""
    numa_node: int | None = None
    """None where the kernel says -1."""

    @property
    def root_port(self) -> PciAddress | None:
        """The bridge directly below the root complex."""
        return self.bridges[0] if self.bridges else None

    @property
    def switch(self) -> PciAddress | None:
        """The closest switch above the device, named by its upstream port; None where there is none.

        Read from the shape of the chain: root port, then an upstream and a downstream port for each switch. A chain that
        ends right below a single bridge under the root port has that bridge.
        """
        match len(self.bridges):
            case 0 | 1:
                return None
            case 2:
                return self.bridges[1]
            case _:
                return self.bridges[-2]
