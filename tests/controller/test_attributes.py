"""What the scheduler is told of one GPU."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from api.hardware import Driver
from api.pci import PciAddress, Place
from controller.attributes import cut, describe
from controller.device import Device, Version
from controller.validate import faults_of_device
from tests.support.gpus import a_gpu
from tests.support.properties import FEW

DRIVER = Driver("580.105.08", "13.0")


def test_every_name_of_the_design_is_there():
    """A GPU that tells all is published with all."""
    said = describe(a_gpu(0x65, numa_node=1), DRIVER)
    assert said.attributes == {
        "type": "gpu",
        "uuid": "GPU-00000000-0000-0000-0000-000000000065",
        "productName": "NVIDIA H100 80GB HBM3",
        "brand": "Nvidia",
        "architecture": "Hopper",
        "cudaComputeCapability": Version("9.0.0"),
        "driverVersion": Version("580.105.8"),
        "driverVersionRaw": "580.105.08",
        "cudaDriverVersion": Version("13.0.0"),
        "resource.kubernetes.io/pciBusID": "0000:65:00.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:62",
        "resource.kubernetes.io/numaNode": 1,
        "lanewise.dev/pcieSwitch": "0000:63:00.0",
        "lanewise.dev/pcieRootPort": "0000:62:01.0",
    }
    assert said.capacity == {"memory": "81559Mi"}


def test_a_gpu_that_tells_nothing_is_published_all_the_same():
    """No made-up value: what is unknown is absent."""
    gpu = dataclasses.replace(
        a_gpu(place=Place(PciAddress(0, 1, 0, 0))),
        product_name=None,
        brand=None,
        architecture="",
        compute_capability=None,
        memory_bytes=None,
    )
    said = describe(gpu, Driver())
    assert said.attributes == {"type": "gpu", "uuid": gpu.uuid, "resource.kubernetes.io/pciBusID": "0000:01:00.0"}


def test_a_root_deeper_than_usual_is_no_standard_root():
    """Case C1: Hyper-V's path has the root below VMBUS; the attribute is absent, the device published."""
    place = Place(PciAddress(1, 0, 0, 0), root="pci0001:00", root_is_standard=False, numa_node=0)
    said = describe(a_gpu(place=place), DRIVER)
    assert "resource.kubernetes.io/pcieRoot" not in said.attributes
    assert said.attributes["resource.kubernetes.io/pciBusID"] == "0001:00:00.0"


def test_memory_nodes_of_gpus_are_not_numa_nodes_of_cpus():
    """Case C7: only what sysfs says of the device counts; -1 is not published as a node."""
    for node in (None, -1, 1024):
        said = describe(a_gpu(numa_node=node), DRIVER)
        assert "resource.kubernetes.io/numaNode" not in said.attributes
    assert describe(a_gpu(numa_node=0), DRIVER).attributes["resource.kubernetes.io/numaNode"] == 0


def test_places_have_the_names_that_other_drivers_use():
    """Case C10: matchAttribute finds only equal names, so the root is under the standard one."""
    names = describe(a_gpu(), DRIVER).attributes
    assert "resource.kubernetes.io/pcieRoot" in names
    assert "pcieRoot" not in names


def test_an_address_above_ffff_has_no_standard_form():
    """Intel VMD numbers its domains from 10000; the standard attribute takes four digits."""
    said = describe(a_gpu(place=Place(PciAddress(0x10000, 1, 0, 0))), DRIVER)
    assert "resource.kubernetes.io/pciBusID" not in said.attributes


def test_a_version_that_is_none_spoils_nothing():
    """Case I1: one bad value never blocks the device."""
    said = describe(a_gpu(), Driver("N/A", ""))
    assert "driverVersion" not in said.attributes
    assert said.attributes["driverVersionRaw"] == "N/A"
    said = describe(a_gpu(), Driver("6.19.14.31400000"))
    assert said.attributes["driverVersion"] == Version("6.19.14")
    assert said.attributes["driverVersionRaw"] == "6.19.14.31400000"


def test_unified_memory_has_no_capacity():
    """Case L8: where NVML tells no memory, none is published."""
    assert describe(a_gpu(memory_bytes=None), DRIVER).capacity == {}


@FEW
@given(st.text(max_size=200))
def test_cut_strings_fit_and_begin_as_before(text):
    """64 bytes, no character halved."""
    short = cut(text)
    assert len(short.encode()) <= 64
    assert text.startswith(short)
    assert len(text.encode()) > 64 or short == text


TEXTS = st.none() | st.text(max_size=100)


@FEW
@given(
    st.builds(
        lambda domain, numa, memory, bridges, texts: dataclasses.replace(
            a_gpu(
                place=Place(
                    PciAddress(domain, 1, 0, 0),
                    root=texts[0],
                    root_is_standard=True,
                    bridges=tuple(PciAddress(domain, 0, n, 0) for n in range(bridges)),
                    numa_node=numa,
                )
            ),
            product_name=texts[1],
            brand=texts[2],
            architecture=texts[3],
            compute_capability=texts[4],
            memory_bytes=memory,
        ),
        st.integers(0, 2**32 - 1),
        st.none() | st.integers(-1, 5000),
        st.none() | st.integers(-1, 2**63 - 1),
        st.integers(0, 6),
        st.tuples(TEXTS, TEXTS, TEXTS, TEXTS, TEXTS),
    ),
    TEXTS,
    TEXTS,
)
def test_no_hardware_makes_a_device_that_the_server_refuses(gpu, version, cuda):
    """Cases I1, I7: keys are C identifiers of at most 32 bytes and values fit, whatever the hardware says."""
    said = describe(gpu, Driver(version, cuda))
    device = Device("gpu-0", said.attributes, said.capacity).encode()
    assert faults_of_device(device) == ()
