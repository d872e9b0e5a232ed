"""What the scheduler is told of one GPU.

The names are listed in docs/using.md. What the driver did not tell is left out: a made-up value would be selected by.
"""

from dataclasses import dataclass, field

from api.hardware import Driver, Gpu
from api.names import API_GROUP
from api.pci import Place
from api.quantities import of_bytes
from api.versions import normalise
from controller.device import Value, Version

STANDARD = "resource.kubernetes.io"
"""Prefix of the names that drivers share (k8s.io/dynamic-resource-allocation, package deviceattribute)."""
STRING_MAX = 64
"""Bytes of a string attribute (resource.k8s.io/v1, DeviceAttributeMaxValueLength)."""
NUMA_NODES = 1024
"""Upstream's helper for numaNode takes nothing from here up (KEP-6072)."""


@dataclass(slots=True)
class Description:
    """A GPU's attributes and capacity."""

    attributes: dict[str, Value] = field(default_factory=dict)
    capacity: dict[str, str] = field(default_factory=dict)


def describe(gpu: Gpu, driver: Driver) -> Description:
    """Attributes and capacity of a whole GPU, each within the API's limits (Cases C1, C7, I1, L8)."""
    said = Description()
    _put_strings(
        said,
        {
            "type": "gpu",
            "uuid": gpu.uuid,
            "productName": gpu.product_name,
            "brand": gpu.brand,
            "architecture": gpu.architecture,
        },
    )
    _put_version(said, "cudaComputeCapability", gpu.compute_capability)
    _put_version(said, "driverVersion", driver.version)
    if driver.version and said.attributes.get("driverVersion") != Version(driver.version):
        said.attributes["driverVersionRaw"] = cut(driver.version)
    _put_version(said, "cudaDriverVersion", driver.cuda_version)
    _put_place(said, gpu.place)
    if gpu.memory_bytes is not None and gpu.memory_bytes > 0:
        said.capacity["memory"] = of_bytes(gpu.memory_bytes)
    return said


def cut(text: str) -> str:
    """The longest beginning of `text` that fits a string attribute: 64 bytes of UTF-8, no character halved."""
    raw = text.encode("utf-8", "replace")
    return raw.decode("utf-8") if len(raw) <= STRING_MAX else raw[:STRING_MAX].decode("utf-8", "ignore")


def _put_strings(said: Description, values: dict[str, str | None]) -> None:
    said.attributes.update({key: cut(value) for key, value in values.items() if value})


def _put_version(said: Description, key: str, text: str | None) -> None:
    if not text:
        return
    version = normalise(text)
    if version is not None:
        said.attributes[key] = Version(version)


def _put_place(said: Description, place: Place) -> None:
    # Names and forms that other drivers publish too, or matchAttribute never finds them equal (Case C10).
    if place.address.has_standard_form:
        said.attributes[f"{STANDARD}/pciBusID"] = str(place.address)
    if place.root is not None and place.root_is_standard:
        said.attributes[f"{STANDARD}/pcieRoot"] = cut(place.root)
    if place.numa_node is not None and 0 <= place.numa_node < NUMA_NODES:
        said.attributes[f"{STANDARD}/numaNode"] = place.numa_node
    _put_strings(
        said,
        {
            f"{API_GROUP}/pcieSwitch": str(place.switch) if place.switch else None,
            f"{API_GROUP}/pcieRootPort": str(place.root_port) if place.root_port else None,
        },
    )
