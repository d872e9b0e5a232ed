"""Versions as drivers write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.versions import is_semver, normalise
from tests.support.properties import FEW


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("580.105.08", "580.105.8"),
        ("550.54", "550.54.0"),
        ("6.19.14.31400000", "6.19.14"),
        ("440.33.01", "440.33.1"),
        ("9.0", "9.0.0"),
        ("13", "13.0.0"),
        ("535.104.05-grid", "535.104.5"),
        ("", None),
        ("N/A", None),
        ("[Not Supported]", None),
    ],
)
def test_driver_versions_become_semantic(text, expected):
    """Case I1: leading zeros, two, four and no parts."""
    assert normalise(text) == expected


@FEW
@given(st.text() | st.from_regex(r"[0-9]{1,30}(\.[0-9]{1,30}){0,5}.*"))
def test_what_comes_out_is_always_taken(text):
    """Whatever a driver says, the result is a semantic version or nothing."""
    version = normalise(text)
    assert version is None or is_semver(version)


@FEW
@given(st.integers(0, 10**17), st.integers(0, 10**17), st.integers(0, 10**17))
def test_semantic_versions_stay_as_they_are(major, minor, patch):
    """Normalising is idempotent."""
    text = f"{major}.{minor}.{patch}"
    assert normalise(text) == text


@pytest.mark.parametrize(
    "text", ["1.2", "1.2.03", "1.2.3.4", "v1.2.3", "", "1.2.3-01", "1.2.3-" + "a" * 64, f"{2**64}.0.0"]
)
def test_what_the_server_refuses_is_no_semver(text):
    """What the API server answers Invalid for."""
    assert not is_semver(text)


@pytest.mark.parametrize("text", ["1.2.3", "0.0.0", "1.2.3-rc.1", "1.2.3+build.5", "1.2.3-0a"])
def test_semver_with_suffixes(text):
    """Pre-releases and build metadata are part of semver 2.0.0."""
    assert is_semver(text)
