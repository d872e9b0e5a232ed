"""Names that other people depend on."""

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.names import (
    GPU_DRIVER,
    checked_driver_name,
    gpu_address,
    gpu_device_name,
    is_dns_label,
    is_dns_subdomain,
    pool_name,
)
from api.pci import PciAddress
from api.refusals import Refused

addresses = st.builds(
    PciAddress, st.integers(0, 0xFFFFFFFF), st.integers(0, 0xFF), st.integers(0, 0x1F), st.integers(0, 7)
)


@settings(deadline=None)
@given(addresses)
def test_device_name_is_a_dns_label_and_leads_back(address: PciAddress) -> None:
    """Whatever the domain."""
    name = gpu_device_name(address)
    assert is_dns_label(name)
    assert gpu_address(name) == address


@settings(deadline=None)
@given(st.text(alphabet="gpu-0123456789abcdef", max_size=20))
def test_device_name_read_is_written_the_same(text: str) -> None:
    """Two names never mean one device."""
    address = gpu_address(text)
    assert address is None or gpu_device_name(address) == text


@pytest.mark.parametrize(
    ("address", "name"),
    [("0000:65:00.0", "gpu-65-00-0"), ("0001:00:00.0", "gpu-0001-00-00-0"), ("10000:e1:00.0", "gpu-10000-e1-00-0")],
)
def test_device_name_is_made_of_the_address(address: str, name: str) -> None:
    """The domain only where it is not 0000."""
    assert gpu_device_name(PciAddress.parse(address)) == name


@pytest.mark.parametrize(
    "name", ["gpu-65-00-8", "gpu-65-20-0", "gpu-0000-65-00-0", "gpu-0", "gpu-65-00-0-mig", "nic-65-00-0", ""]
)
def test_name_that_is_not_ours_has_no_address(name: str) -> None:
    """Other drivers name devices too."""
    assert gpu_address(name) is None


@settings(deadline=None)
@given(st.text(alphabet=string.ascii_letters + string.digits + "-.é", max_size=80))
def test_subdomain_is_made_of_labels(text: str) -> None:
    """RFC 1123 as Kubernetes checks it."""
    assert is_dns_subdomain(text) == all(is_dns_label(part) for part in text.split("."))


def test_names_at_their_limits() -> None:
    """63 for a label, 253 for a subdomain."""
    assert is_dns_label("a" * 63)
    assert not is_dns_label("a" * 64)
    assert is_dns_subdomain(".".join(["a" * 61] * 4)[:253])
    assert not is_dns_subdomain(".".join(["a" * 63] * 4))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("GPU.example.com", "'GPU.example.com' is no DNS subdomain"),
        ("gpu", "'gpu' is no DNS subdomain"),
        (
            "gpu.a-very-long-name.example",
            "'gpu.a-very-long-name.example' has 28 characters; the kubelet's socket paths leave room for 27",
        ),
    ],
)
def test_driver_name_that_cannot_work_is_refused_at_start(name: str, why: str) -> None:
    """With the flag that said it."""
    with pytest.raises(Refused) as refused:
        checked_driver_name(name, source="--driver-name")
    assert refused.value.reason.what == f"--driver-name: {why}"
    assert refused.value.reason.remedy


def test_driver_name_of_ours_is_taken() -> None:
    """And pools are named after node and driver, so that two drivers' counters stay apart."""
    assert checked_driver_name(GPU_DRIVER, source="--driver-name") == GPU_DRIVER
    assert pool_name("node-a", GPU_DRIVER) == "node-a/gpu.lanewise.dev"
