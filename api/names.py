"""The names other people depend on: drivers, pools, devices, and how they map to PCI addresses."""

import re
from dataclasses import dataclass

from api.pci import PciAddress
from api.refusals import BadInput, Refused

API_GROUP = "lanewise.dev"
API_VERSION = "lanewise.dev/v1alpha1"
NAMESPACE = "lanewise-system"
GPU_DRIVER = "gpu.lanewise.dev"

DRIVER_NAME_MAX = 27
"""What leaves room for `/var/lib/kubelet/plugins_registry/<driver>-<pod uid>-reg.sock` in the 107 bytes of a socket path."""

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_GPU_NAME = re.compile(r"gpu-(?:([0-9a-f]{4,8})-)?([0-9a-f]{2})-([01][0-9a-f])-([0-7])")


def is_dns_label(text: str) -> bool:
    """RFC 1123 label, at most 63 characters, lower case: what a device name must be."""
    return _DNS_LABEL.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    """RFC 1123 subdomain, at most 253 characters, lower case."""
    return len(text) <= 253 and all(is_dns_label(part) for part in text.split("."))


def checked_driver_name(text: str, *, source: str) -> str:
    """The driver name, or Refused with `source` (a flag) when Kubernetes or the socket path would not take it."""
    if not is_dns_subdomain(text) or "." not in text:
        raise Refused(BadInput(source, f"{text!r} is no DNS subdomain", f"use a name such as {GPU_DRIVER}"))
    if len(text) > DRIVER_NAME_MAX:
        problem = f"{text!r} has {len(text)} characters; the kubelet's socket paths leave room for {DRIVER_NAME_MAX}"
        raise Refused(BadInput(source, problem, "use a shorter name"))
    return text


def pool_name(node: str, driver: str) -> str:
    """`<node>/<driver>`: unique across drivers, because the scheduler of 1.36 keys counters by pool name (k/k #140434).

    At most 253 bytes; the caller checks (`controller.validate`).
    """
    return f"{node}/{driver}"


def gpu_device_name(address: PciAddress) -> str:
    """`gpu-65-00-0` for 0000:65:00.0, `gpu-0001-00-00-0` for 0001:00:00.0; a DNS label, and reversible."""
    domain = f"{address.domain:04x}-" if address.domain else ""
    return f"gpu-{domain}{address.bus:02x}-{address.device:02x}-{address.function:x}"


def gpu_address(device_name: str) -> PciAddress | None:
    """The address in a device name of ours, None when it is not one."""
    match = _GPU_NAME.fullmatch(device_name)
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    address = PciAddress(int(domain or "0", 16), int(bus, 16), int(device, 16), int(function))
    return address if gpu_device_name(address) == device_name else None


def lease_name(instance: str) -> str:
    """The Lease that one plugin instance renews, in the plugin's namespace; `spec.holderIdentity` is the node's name."""
    return f"lanewise-node-{instance}"


@dataclass(frozen=True, slots=True, order=True)
class ClaimRef:
    """Which claim: what the kubelet sends, and all that is left of a claim that was deleted."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"
