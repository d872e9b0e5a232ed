"""Kubernetes quantities."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.quantities import of_bytes, parse, same
from tests.support.properties import FEW


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (1, "1"),
        (1000, "1k"),
        (1024, "1Ki"),
        (85520809984, "81559Mi"),
        (80 * 2**30, "80Gi"),
        (81559 * 10**6 + 1, "81559000001"),
        (2**70, "1024Ei"),
    ],
)
def test_bytes_are_written_canonically(count, text):
    """As the API server would write them back."""
    assert of_bytes(count) == text


@FEW
@given(st.integers(0, 2**63))
def test_bytes_survive_writing(count):
    """Reading gives back what was written."""
    assert parse(of_bytes(count)) == count


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("40Gi", Fraction(40 * 2**30)),
        ("1.5Gi", Fraction(3 * 2**29)),
        ("100m", Fraction(1, 10)),
        ("1e3", Fraction(1000)),
        ("1E3", Fraction(1000)),
        ("12E", Fraction(12 * 10**18)),
        ("-2k", Fraction(-2000)),
        (".5", Fraction(1, 2)),
        ("5.", Fraction(5)),
    ],
)
def test_reading(text, value):
    """All suffixes and exponents."""
    assert parse(text) == value


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "1gi", "0x10", "1KB", "--1", "1e", "٣"])
def test_nonsense_is_no_quantity(text):
    """One sentence that says how a quantity looks."""
    with pytest.raises(ValueError, match="is no quantity"):
        parse(text)


def test_same_amount_in_other_words():
    """The server may write an amount anew."""
    assert same("1024Mi", "1Gi")
    assert not same("1G", "1Gi")


def test_negative_bytes_are_refused():
    """No device has less than nothing."""
    with pytest.raises(ValueError, match="no capacity"):
        of_bytes(-1)
