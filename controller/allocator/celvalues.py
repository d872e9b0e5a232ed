"""Quantities and versions in CEL: how they are shown to expressions, and the functions on them.

The library takes no types of ours, so each is a map with one entry whose key nobody writes, and whose value is the same
for equal ones: == then means what it means in Kubernetes. Source: apiserver, pkg/cel/library/{quantity,semverlib}.go.
"""

import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from api import quantities

if TYPE_CHECKING:
    from types import ModuleType

_QUANTITY, _VERSION = "\1quantity", "\1version"
_NANO = 10**9
Shown = dict[str, str]


def attribute(value: Mapping[str, Any]) -> Any:
    """What a DeviceAttribute is in an expression; ValueError where it is none."""
    for kind in ("int", "bool", "string", "ints", "bools", "strings"):
        if value.get(kind) is not None:
            return value[kind]
    if value.get("version") is not None:
        return version(value["version"])
    if value.get("versions") is not None:
        return [version(each) for each in value["versions"]]
    raise ValueError("unsupported attribute value")


def quantity(text: str) -> Shown:
    """A quantity; ValueError when it is none. Finer than nano is rounded up, as Kubernetes does."""
    number = quantities.parse(text)
    exact = number * _NANO
    return _shown(number if exact.denominator == 1 else Fraction(math.copysign(math.ceil(abs(exact)), exact)) / _NANO)


def _shown(number: Fraction) -> Shown:
    return {_QUANTITY: str(number)}


def version(text: str) -> Shown:
    """A version of strict semver 2.0.0; ValueError when it is none. Equal ones may differ in their build metadata."""
    if len(text.encode()) > 256 or not _SEMVER.fullmatch(text):
        raise ValueError(f"{text!r} is no version of semver.org, like 1.2.3")
    return {_VERSION: text.partition("+")[0]}


_NUMBER = r"(?:0|[1-9]\d{0,18})"
_BEFORE = rf"(?:{_NUMBER}|\d*[A-Za-z-][0-9A-Za-z-]*)"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_BEFORE}(?:\.{_BEFORE})*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)


def _normal_version(text: str, tolerant: object) -> Shown:
    """With `tolerant`, a leading v, leading zeros and absent minor and patch numbers are made up for."""
    if not tolerant:
        return version(text)
    parts = text.removeprefix("v").split(".", 2)
    for i, part in enumerate(parts):
        if len(part) > 1:
            short = part.lstrip("0")
            parts[i] = short if short[:1].isdecimal() and short.isascii() else f"0{short}"
    if len(parts) < 3 and set(parts[-1]) & set("+-"):
        raise ValueError("short version cannot contain PreRelease/Build meta data")
    return version(".".join([*parts, "0", "0"][: max(3, len(parts))]))


def _order(text: str) -> tuple[Any, ...]:
    """A key that sorts versions by precedence (semver.org, section 11)."""
    numbers, _, before = text.partition("-")
    parts = tuple((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in before.split(".")) if before else ()
    return (*map(int, numbers.split(".")), not before, parts)


def _number(shown: Mapping[str, str]) -> Fraction:
    try:
        return Fraction(shown[_QUANTITY])
    except KeyError:
        raise ValueError("no such overload: this is no quantity") from None


def _compared(one: Mapping[str, str], other: Mapping[str, str]) -> int:
    """-1, 0 or 1, for two quantities or two versions."""
    if _VERSION in one and _VERSION in other:
        a, b = _order(one[_VERSION]), _order(other[_VERSION])
    else:
        a, b = (_number(one),), (_number(other),)
    return (a > b) - (a < b)


def _integer(shown: Mapping[str, str]) -> int | None:
    """The value as an int64; None where it has none. ValueError where that depends on how the quantity was written.

    Kubernetes keeps quantities with many digits in a form that it does not convert (apimachinery, ParseQuantity: more than
    18 digits, or in binary more than about 15).
    """
    number = _number(shown)
    if number.denominator != 1:
        return None
    whole, power = int(number), 0
    while whole and whole % 1024 == 0 and power < 6:
        whole, power = whole // 1024, power + 1
    as_decimal = len(str(abs(int(number))).rstrip("0")) <= 18 and abs(number) < 2**63
    as_binary = power == 0 or 15 - len(str(abs(whole))) - power * 3 - 1 >= 0
    if as_decimal != as_binary:
        raise ValueError(f"whether {number} has an integer value depends on how it is written")
    return int(number) if as_decimal else None


def _as_integer(shown: Mapping[str, str]) -> int:
    found = _integer(shown)
    if found is None:
        raise ValueError("cannot convert value to integer")
    return found


def _valid(read: Callable[..., object], *arguments: object) -> bool:
    try:
        read(*arguments)
    except ValueError:
        return False
    return True


def _part(index: int) -> Callable[[Mapping[str, str]], int]:
    def part(shown: Mapping[str, str]) -> int:
        if _VERSION not in shown:
            raise ValueError("no such overload: this is no version")
        return int(shown[_VERSION].partition("-")[0].split(".")[index])

    return part


def functions(library: "ModuleType") -> list[Any]:
    """The declarations for the library (`cel_expr_python.cel`)."""
    kinds = library.Type
    shown = kinds.Map(kinds.STRING, kinds.STRING)

    def declared(name: str, *overloads: tuple[Any, list[Any], Callable[..., Any]], member: bool = True) -> Any:
        made = [
            library.Overload(f"kubernetes_{name}_{i}", result, given, member, body)
            for i, (result, given, body) in enumerate(overloads)
        ]
        return library.FunctionDecl(name, made)

    both = [shown, shown]
    tolerant = [kinds.STRING, kinds.BOOL]
    return [
        declared("quantity", (shown, [kinds.STRING], quantity), member=False),
        declared("isQuantity", (kinds.BOOL, [kinds.STRING], lambda text: _valid(quantity, text)), member=False),
        declared("sign", (kinds.INT, [shown], lambda q: (_number(q) > 0) - (_number(q) < 0)), member=False),
        declared("isInteger", (kinds.BOOL, [shown], lambda q: _integer(q) is not None)),
        declared("asInteger", (kinds.INT, [shown], _as_integer)),
        declared("asApproximateFloat", (kinds.DOUBLE, [shown], lambda q: float(_number(q)))),
        declared(
            "add",
            (shown, both, lambda a, b: _shown(_number(a) + _number(b))),
            (shown, [shown, kinds.INT], lambda a, b: _shown(_number(a) + b)),
        ),
        declared(
            "sub",
            (shown, both, lambda a, b: _shown(_number(a) - _number(b))),
            (shown, [shown, kinds.INT], lambda a, b: _shown(_number(a) - b)),
        ),
        declared("isGreaterThan", (kinds.BOOL, both, lambda a, b: _compared(a, b) > 0)),
        declared("isLessThan", (kinds.BOOL, both, lambda a, b: _compared(a, b) < 0)),
        declared("compareTo", (kinds.INT, both, _compared)),
        declared("semver", (shown, [kinds.STRING], version), (shown, tolerant, _normal_version), member=False),
        declared(
            "isSemver",
            (kinds.BOOL, [kinds.STRING], lambda text: _valid(version, text)),
            (kinds.BOOL, tolerant, lambda text, loose: _valid(_normal_version, text, loose)),
            member=False,
        ),
        declared("major", (kinds.INT, [shown], _part(0))),
        declared("minor", (kinds.INT, [shown], _part(1))),
        declared("patch", (kinds.INT, [shown], _part(2))),
    ]
