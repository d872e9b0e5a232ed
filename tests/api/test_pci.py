"""PCI addresses, and what the chain of bridges tells."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.pci import PciAddress, Place

addresses = st.builds(
    PciAddress, st.integers(0, 0xFFFFFFFF), st.integers(0, 0xFF), st.integers(0, 0x1F), st.integers(0, 7)
)


@settings(deadline=None)
@given(addresses)
def test_address_survives_being_written_and_read(address: PciAddress) -> None:
    """As sysfs writes it, and as NVML does."""
    nvml = f"{address.domain:08X}:{address.bus:02X}:{address.device:02X}.{address.function:X}"
    assert PciAddress.parse(str(address)) == PciAddress.parse(nvml) == address


@settings(deadline=None)
@given(addresses, addresses)
def test_addresses_sort_as_they_read(first: PciAddress, second: PciAddress) -> None:
    """Within domains of equal width."""
    width = max(len(str(first)), len(str(second)))
    assert (first < second) == (str(first).rjust(width, "0") < str(second).rjust(width, "0"))


@settings(deadline=None)
@given(st.text(max_size=16))
def test_any_text_is_an_address_or_a_value_error(text: str) -> None:
    """Nothing else is raised, and what is read can be read again."""
    try:
        address = PciAddress.parse(text)
    except ValueError as error:
        assert repr(text) in str(error)
    else:
        assert PciAddress.parse(str(address)) == address


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("0000:65:00.0", "0000:65:00.0"),
        ("65:00.0", "0000:65:00.0"),
        ("00000000:00:1E.0", "0000:00:1e.0"),
        ("10000:e1:00.0", "10000:e1:00.0"),
        (" 0001:00:00.0\n", "0001:00:00.0"),
    ],
)
def test_address_is_written_as_sysfs_does(text: str, written: str) -> None:
    """Lower case, at least four digits of domain."""
    assert str(PciAddress.parse(text)) == written


@pytest.mark.parametrize(
    "text", ["", "0000:65:00", "0000:65:20.0", "0000:65:00.8", "000:65:00.0", "pci0000:65", "\u0660\u0660:00:00.0"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    """Devices end at 1f, functions at 7."""
    with pytest.raises(ValueError, match=r"is no PCI address; one looks like 0000:65:00\.0"):
        PciAddress.parse(text)


@pytest.mark.parametrize(
    ("bridges", "port", "switch"),
    [
        ([], None, None),
        (["0000:00:01.0"], "0000:00:01.0", None),
        (["0000:00:01.0", "0000:01:00.0"], "0000:00:01.0", "0000:01:00.0"),
        (["0000:15:01.0", "0000:16:00.0", "0000:17:00.0"], "0000:15:01.0", "0000:16:00.0"),
        (
            ["0000:00:01.1", "0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"],
            "0000:00:01.1",
            "0000:03:00.0",
        ),
    ],
    ids=["flat", "root port alone", "bridge", "switch", "nested switches"],
)
def test_switch_is_the_closest_one(bridges: list[str], port: str | None, switch: str | None) -> None:
    """Named by its upstream port; a root port is none."""
    place = Place(PciAddress.parse("0000:18:00.0"), bridges=tuple(map(PciAddress.parse, bridges)))
    assert (place.root_port and str(place.root_port), place.switch and str(place.switch)) == (port, switch)
