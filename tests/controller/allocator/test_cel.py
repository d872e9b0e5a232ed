"""Selectors by themselves; `tests/upstream` holds them against Kubernetes."""

import pytest

from controller.allocator.cel import CelError, Compiler, Input
from controller.allocator.celsource import read
from tests.upstream.cel_expressions import DEVICE, DRIVER, REFUSED

A = f'device.attributes["{DRIVER}"]'


def matches(expression, device=DEVICE):
    return Compiler().compiled(expression).matches(Input.of(DRIVER, device))


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        (f"{A}.numa == 1 && {A}.healthy", True),
        ('device.attributes["other.example.com"].numa == 7', True),
        ('has(device.attributes["unknown.example.com"].numa)', False),
        ('"unknown.example.com" in device.attributes', False),
        ("device.attributes.exists(d, d == 'unknown.example.com')", False),
        (f'device.capacity["{DRIVER}"].memory == quantity("85520809984")', True),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0', False),
        (f'{A}.driverVersion.isGreaterThan(semver("580.65.6"))', True),
        (f'{A}.early == semver("1.2.3-rc.1+other")', True),
    ],
)
def test_selector_selects(expression, selected):
    """Qualified and unqualified names, unknown domains, quantities and versions."""
    assert matches(expression) is selected


@pytest.mark.parametrize("expression", REFUSED)
def test_what_cannot_be_evaluated_is_refused(expression):
    """Never an answer that Kubernetes might not give."""
    with pytest.raises(CelError):
        matches(expression)


def test_missing_attribute_fails_at_run_time():
    """Kubernetes ends the allocation there, so it is an error and not a no."""
    with pytest.raises(CelError) as caught:
        matches(f"{A}.nosuch == 1")
    assert caught.value.at_run_time


@pytest.mark.parametrize(
    "expression", ["1", f"{A}.numa", f"{A}", "device", "1 ==", "", "dvice.driver == 'x'", "true" + " " * 10240]
)
def test_what_is_no_selector_is_an_error(expression):
    """No bool, no device, no CEL, or too long."""
    with pytest.raises(CelError):
        matches(expression)


def test_same_error_comes_again_from_the_kept_result():
    """An expression is compiled once, also when it fails."""
    compiler = Compiler()
    for _ in range(2):
        with pytest.raises(CelError, match="undeclared reference to 'nosuch'"):
            compiler.compiled("nosuch")


def test_version_that_is_none_fails_every_selector():
    """A device whose version attribute is no semver cannot be judged at all (cel/compile.go, getAttributeValue)."""
    with pytest.raises(CelError, match=r"driver: '1\.2' is no version"):
        Input.of(DRIVER, {"name": "x", "attributes": {"driver": {"version": "1.2"}}})


def test_names_in_the_text_get_an_empty_domain():
    """Strings and names may be domains; what stands in comments is not read."""
    source = read('device.attributes["a.com"].b == \'c\' // device.attributes["d.com"]')
    assert {"a.com", "b", "c"} <= source.domains
    assert "d.com" not in source.domains


def test_use_of_the_whole_map_is_told_from_a_lookup():
    """`in`, size and macros see only what the device has."""
    assert read('"x" in device.attributes').text == '"x" in device.attributes__known'
    assert read("device.attributes.x").text == "device.attributes.x"
    assert read("device.attributes.exists(d, true)").text == "device.attributes__known.exists(d, true)"
