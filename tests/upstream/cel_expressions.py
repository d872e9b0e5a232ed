"""Selectors to evaluate here and by Kubernetes: written by hand, and composed at random of the same parts."""

import random
from typing import Any

DRIVER = "gpu.example.com"
A = f'device.attributes["{DRIVER}"]'
C = f'device.capacity["{DRIVER}"]'

DEVICE: dict[str, Any] = {
    "name": "gpu-0",
    "attributes": {
        "numa": {"int": 1},
        "zero": {"int": 0},
        "big": {"int": 9007199254740993},
        "model": {"string": "NVIDIA H100 80GB HBM3"},
        "empty": {"string": ""},
        "healthy": {"bool": True},
        "mig": {"bool": False},
        "driverVersion": {"version": "580.105.8"},
        "early": {"version": "1.2.3-rc.1+build5"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:50"},
        "other.example.com/numa": {"int": 7},
        f"{DRIVER}/uuid": {"string": "GPU-53bb388b"},
    },
    "capacity": {
        "memory": {"value": "81559Mi"},
        "other.example.com/slices": {"value": "7"},
        "fraction": {"value": "1500m"},
    },
}
BARE: dict[str, Any] = {"name": "gpu-1"}

SAME = (
    # The device and its fields.
    f'device.driver == "{DRIVER}"',
    'device.driver.startsWith("gpu.")',
    "device.allowMultipleAllocations",
    "!device.allowMultipleAllocations",
    "device.drver == 'x'",
    "dvice.driver == 'x'",
    "device",
    "device.driver",
    "device.driver == 1",
    "true",
    "1",
    '"true"',
    "true || device.nosuch",
    # Attributes: domains and names.
    f"{A}.numa == 1",
    f'{A}["numa"] == 1',
    f"{A}.numa == 1.0",
    f"{A}.numa == uint(1)",
    f'{A}.numa == "1"',
    f"{A}.numa >= 1 && {A}.numa < 2",
    f"{A}.numa < 1.5",
    f"{A}.big == 9007199254740993",
    f"{A}.big + 9223372036854775807 > 0",
    f"{A}.zero / {A}.zero == 0",
    f"1 / {A}.zero == 0 || true",
    f"{A}.healthy",
    f"!{A}.healthy",
    f"{A}.numa",
    f"!{A}.numa",
    f"{A}.healthy ? {A}.numa == 1 : {A}.nosuch == 1",
    f"{A}.nosuch == 1",
    f"has({A}.nosuch)",
    f"has({A}.numa)",
    f"has({A}.nosuch) && {A}.nosuch == 1",
    f"{A}.nosuch == 1 || true",
    f"true || {A}.nosuch == 1",
    f"{A}.nosuch == 1 && false",
    f'"numa" in {A}',
    f'"nosuch" in {A}',
    f"size({A}) > 0",
    f"{A}.size() == 0",
    f"{A} == {{}}",
    f'{A}.exists(name, name == "numa")',
    f"{A}.all(name, name != '')",
    f"{A}.uuid == 'GPU-53bb388b'",
    'device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:50"',
    'device.attributes["other.example.com"].numa == 7',
    'device.attributes["unknown.example.com"].numa == 7',
    'has(device.attributes["unknown.example.com"].numa)',
    'device.attributes["unknown.example.com"].size() == 0',
    '"unknown.example.com" in device.attributes',
    '"other.example.com" in device.attributes',
    f'"{DRIVER}" in device.attributes',
    "device.driver in device.attributes",
    "device.attributes[device.driver].numa == 1",
    "has(device.attributes[device.driver].numa)",
    "size(device.attributes) == 3",
    "device.attributes.size() == 3",
    'device.attributes.exists(d, d == "unknown.example.com")',
    "device.attributes.exists(d, has(device.attributes[d].numa) && device.attributes[d].numa == 7)",
    "device.attributes.unknown.size() == 0",
    "has(device.attributes.unknown)",
    "1 in device.attributes",
    "device.attributes[1]",
    # Optionals.
    f"{A}.?numa.orValue(5) == 1",
    f"{A}.?nosuch.orValue(5) == 5",
    f'{A}[?"nosuch"].hasValue()',
    f'{A}[?"numa"].hasValue()',
    'device.attributes[?"unknown.example.com"].hasValue()',
    'device.attributes[?"unknown.example.com"].?numa.hasValue()',
    'device.attributes[?"unknown.example.com"].numa.orValue(3) == 3',
    "device.attributes.?unknown.hasValue()",
    f'{A}.?model.value().contains("H100")',
    f"{A}.?nosuch.value() == 1",
    f"{A}.?numa.optMap(n, n + 1).orValue(0) == 2",
    f"{A}.?numa == optional.of(1)",
    f"{A}.?nosuch == optional.none()",
    # Strings.
    f'{A}.model.contains("H100")',
    f'{A}.model.matches("^NVIDIA (H|A)100.*HBM3$")',
    f'{A}.model.matches("(")',
    f'{A}.numa.matches("x")',
    f'{A}.model.lowerAscii() == "nvidia h100 80gb hbm3"',
    f'{A}.model.split(" ")[1] == "H100"',
    f'{A}.model.split(" ").size() == 4',
    f'{A}.model.substring(7, 11) == "H100"',
    f'{A}.model.indexOf("H") == 7',
    f'{A}.model.replace("NVIDIA ", "") == "H100 80GB HBM3"',
    f'{A}.model in ["x", "NVIDIA H100 80GB HBM3"]',
    f'{A}.model + "!" == "NVIDIA H100 80GB HBM3!"',
    f"{A}.model.size() == 21",
    f'{A}.model.endsWith("HBM3") && {A}.model.startsWith("NVIDIA")',
    f'{A}.model.charAt(0) == "N"',
    f"{A}.model > 'M'",
    f"{A}.empty == ''",
    f"{A}.model.trim() == {A}.model",
    '"a,b".split(",").join("-") == "a-b"',
    '"x".reverse() == "x"',
    "'%d and %s'.format([1, 'two']) == '1 and two'",
    "int('3') == 3",
    "int(1.9) == 1",
    "string(3) == '3'",
    "bool('true')",
    r"'\x41\u0042' == 'AB'",
    r"r'\d' == '\\d'",
    '"""a"""' + " == 'a'",
    "b'abc' == bytes('abc')",
    # Macros and lists.
    "[1, 2, 3].exists(n, n == 2)",
    "[1, 2, 3].all(n, n > 0)",
    "[1, 2, 3].exists_one(n, n > 2)",
    "[1, 2, 3].map(n, n * 2) == [2, 4, 6]",
    "[1, 2, 3].filter(n, n > 1).size() == 2",
    f"{A}.numa in [0, 1]",
    f"cel.bind(a, {A}, a.numa == 1 && a.healthy)",
    f'cel.bind(d, "{DRIVER}", device.attributes[d].numa == 1)',
    "{'a': 1}['a'] == 1",
    "{'a': 1}.a == 1",
    "1 == 1 // a comment",
    "(1 < 2) == true",
    "1 == 1.0",
    "-1 < 0",
    "5 % 3 == 2",
    "1 + 2 * 3 == 7",
    "null == null",
    "timestamp('2026-01-01T00:00:00Z') < timestamp('2027-01-01T00:00:00Z')",
    "duration('1h') > duration('1m')",
    # Quantities.
    f'{C}.memory.compareTo(quantity("80000Mi")) > 0',
    f'{C}.memory.isGreaterThan(quantity("80Gi"))',
    f'{C}.memory.isLessThan(quantity("80Gi"))',
    f'{C}.memory == quantity("81559Mi")',
    f'{C}.memory == quantity("85520809984")',
    f'{C}.memory != quantity("80Gi")',
    f'{C}.memory >= quantity("80Gi")',
    f'{C}.memory == "81559Mi"',
    f"{C}.memory.asInteger() == 85520809984",
    f"{C}.memory.isInteger()",
    f"{C}.fraction.isInteger()",
    f"{C}.fraction.asInteger() == 1",
    f"{C}.fraction.asApproximateFloat() == 1.5",
    f"{C}.fraction.compareTo(quantity('1.5')) == 0",
    f"sign({C}.memory) == 1",
    f'{C}.memory.add(quantity("1Mi")) == quantity("81560Mi")',
    f"{C}.memory.sub(85520809984) == quantity('0')",
    f"{C}.memory.add({C}.fraction).isInteger()",
    f"{C}.nosuch.isInteger()",
    f"has({C}.nosuch)",
    'device.capacity["other.example.com"].slices.compareTo(quantity("7")) == 0',
    'has(device.capacity["unknown.example.com"].memory)',
    '"unknown.example.com" in device.capacity',
    'isQuantity("80Gi")',
    'isQuantity("80G i")',
    'isQuantity("")',
    'quantity("80Gj").isInteger()',
    'quantity("1Gi") == quantity("1024Mi")',
    'quantity("-1").compareTo(quantity("0")) == -1',
    'sign(quantity("-1")) == -1',
    'quantity("1e3") == quantity("1k")',
    # Versions.
    f'{A}.driverVersion.isGreaterThan(semver("580.65.6"))',
    f'{A}.driverVersion.isLessThan(semver("580.65.6"))',
    f'{A}.driverVersion.compareTo(semver("580.105.8")) == 0',
    f'{A}.driverVersion == semver("580.105.8")',
    f'{A}.driverVersion != semver("580.105.9")',
    f'semver("580.105.8") == {A}.driverVersion',
    f"{A}.driverVersion.major() >= 580",
    f"{A}.driverVersion.minor() == 105 && {A}.driverVersion.patch() == 8",
    f"{A}.numa.major() == 1",
    f'{A}.early.compareTo(semver("1.2.3")) < 0',
    f'{A}.early.compareTo(semver("1.2.3-rc.1")) == 0',
    f'{A}.early.isGreaterThan(semver("1.2.3-beta.9"))',
    f'{A}.early == semver("1.2.3-rc.1+other")',
    'semver("1.2") == semver("1.2.0")',
    'semver("v1.2", true) == semver("1.2.0")',
    'semver("v01.02.03", true) == semver("1.2.3")',
    'semver("1.2-rc", true) == semver("1.2.0")',
    'isSemver("1.2.3")',
    'isSemver("v1.2.3")',
    'isSemver("v1.2.3", true)',
    'isSemver("1.2.3.4")',
    'isSemver("1.02.3")',
    'semver("1.10.0").isGreaterThan(semver("1.9.0"))',
    'semver("1.0.0-alpha").isLessThan(semver("1.0.0-alpha.1"))',
    'semver("1.0.0-alpha.1").isLessThan(semver("1.0.0-alpha.beta"))',
    'semver("1.0.0-2").isLessThan(semver("1.0.0-10"))',
    f'{A}.driverVersion.compareTo(quantity("1")) == 0',
    f'{A}.driverVersion in [semver("580.105.8")]',
    # What does not parse.
    "",
    "1 ==",
    "device.attributes[",
    "'unclosed",
)
"""On these both say the same, an error counting as one thing to say."""

REFUSED = (
    # What Kubernetes answers and the library here does not have: refused, never answered otherwise.
    "1 < 2.5",
    "double('0.5') < 1",
    "sets.contains([1, 2], [1])",
    "[1, 2].sum() == 3",
    "[3, 1].isSorted()",
    '"abc123".find("[0-9]+") == "123"',
    'url("https://example.com").getHost() == "example.com"',
    'isIP("10.0.0.1")',
    "[1, 2].all(i, v, i < v)",
    f'{A}.model.includes("x")',
    "dyn(1) == 1",
    "type(1) == int",
    "has(device.driver)",
    "device.attributes == {}",
    f"cel.bind(a, device.attributes, a['{DRIVER}'].numa == 1)",
    'device.attributes["unknown." + "example.com"].size() == 0',
    f"{A}.driverVersion == '580.105.8'",
    f"cel.bind(v, {A}.driverVersion, v == '580.105.8')",
    f"{A}.?driverVersion.orValue('') == ''",
    f'{A}["driverVersion"] != "x"',
)
"""These are refused on DEVICE, whatever Kubernetes says."""

_BOOLS = (
    f"{A}.healthy",
    f"{A}.mig",
    f"has({A}.numa)",
    f"has({A}.nosuch)",
    f"{A}.nosuch",
    '"other.example.com" in device.attributes',
    "device.allowMultipleAllocations",
    f"{A}.?healthy.orValue(false)",
    'has(device.attributes["unknown.example.com"].x)',
    "true",
    "false",
)
_NUMBERS = (f"{A}.numa", f"{A}.zero", f"{A}.nosuch", f"{A}.?nosuch.orValue(3)", "2", f"size({A}.model)", "(1 / 0)")
_STRINGS = (f"{A}.model", f"{A}.empty", f"{A}.uuid", "device.driver", '"H100"', f"{A}.nosuch", f"{A}.numa")
_AMOUNTS = (f"{C}.memory", f"{C}.fraction", f"{C}.nosuch", 'quantity("80Gi")', 'quantity("1.5")', 'quantity("x")')
_VERSIONS = (f"{A}.driverVersion", f"{A}.early", f"{A}.nosuch", 'semver("580.0.0")', 'semver("1.2.3")', 'semver("x")')


def composed(seed: int, count: int) -> list[str]:
    """So many expressions of a few parts each."""
    chance = random.Random(seed)
    return [_any(chance, 3) for _ in range(count)]


def _any(chance: random.Random, depth: int) -> str:
    pick = chance.choice
    if depth == 0 or chance.random() < 0.35:
        match chance.randrange(5):
            case 0:
                return pick(_BOOLS)
            case 1:
                return f"{pick(_NUMBERS)} {pick(('<', '<=', '==', '!=', '>', '>='))} {pick(_NUMBERS)}"
            case 2:
                method = pick(("contains", "startsWith", "endsWith", "matches"))
                return pick((f"{pick(_STRINGS)}.{method}({pick(_STRINGS)})", f"{pick(_STRINGS)} == {pick(_STRINGS)}"))
            case 3:
                method = pick(("isGreaterThan", "isLessThan"))
                return pick((f"{pick(_AMOUNTS)}.{method}({pick(_AMOUNTS)})", f"{pick(_AMOUNTS)} == {pick(_AMOUNTS)}"))
            case _:
                return f"{pick(_VERSIONS)}.compareTo({pick(_VERSIONS)}) {pick(('<', '==', '>'))} 0"
    left, right = _any(chance, depth - 1), _any(chance, depth - 1)
    return pick((f"({left}) && ({right})", f"({left}) || ({right})", f"!({left})", f"({left}) ? ({right}) : ({left})"))
