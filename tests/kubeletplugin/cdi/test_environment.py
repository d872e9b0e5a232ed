"""Environment variables of devices."""

from hypothesis import given
from hypothesis import strategies as st

from api.names import gpu_device_name
from api.pci import PciAddress
from kubeletplugin.cdi.environment import of_device, variable
from tests.support.properties import FEW

ADDRESSES = st.builds(
    PciAddress, st.sampled_from([0, 1, 0x10000]), st.integers(0, 255), st.integers(0, 31), st.integers(0, 7)
)


def test_container_sees_uuid_and_product():
    """What a program in the container reads."""
    assert of_device("gpu-65-00-0", uuid="GPU-1", product="NVIDIA A100-SXM4-40GB") == (
        "LANEWISE_DEVICE_GPU_65_00_0=GPU-1",
        "LANEWISE_DEVICE_GPU_65_00_0_PRODUCT=NVIDIA A100-SXM4-40GB",
    )


def test_unknown_product_is_left_out():
    """No made-up value."""
    assert of_device("gpu-65-00-0", uuid="GPU-1") == ("LANEWISE_DEVICE_GPU_65_00_0=GPU-1",)


@FEW
@given(st.sets(ADDRESSES, max_size=8), st.sets(ADDRESSES, max_size=8))
def test_two_claims_in_one_container_add_up(one: set[PciAddress], other: set[PciAddress]):
    """A runtime keeps the last of two values for one name; here equal names have equal values."""
    env = [
        item
        for address in [*one, *other]
        for item in of_device(gpu_device_name(address), uuid=f"GPU-{address}", product="A=B")
    ]
    seen = dict(item.split("=", 1) for item in env)
    assert {seen[variable(gpu_device_name(address))] for address in one | other} == {f"GPU-{a}" for a in one | other}
    assert len(seen) == 2 * len(one | other)


@FEW
@given(st.text(), st.text())
def test_values_are_one_line_of_printable_text(uuid: str, product: str):
    """Names come from the driver, and are not always decodable."""
    for item in of_device("gpu-65-00-0", uuid=uuid, product=product):
        assert item.isprintable()
        assert item.partition("=")[0] in {"LANEWISE_DEVICE_GPU_65_00_0", "LANEWISE_DEVICE_GPU_65_00_0_PRODUCT"}
        item.encode()
