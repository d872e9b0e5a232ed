"""Kubernetes quantities in the form the API server stores them: 1024Mi becomes 1Gi, 1000 becomes 1k.

Source: apimachinery `api/resource/quantity.go`: the family of the suffix stays, the largest suffix with a whole number
wins, and anything finer than nano is rounded up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from api import quantities

_NANO = 10**9
_EXPONENTS = {f"e{3 * power}" if power else "": power for power in quantities.DECIMAL.values()}


def value_of(text: Any) -> tuple[Fraction, str]:
    """The number, and the family of its suffix (binary, decimal, exponent); ValueError for what is no quantity."""
    plain = "" if isinstance(text, bool) else str(text).strip()
    number = quantities.parse(plain)
    if plain.endswith("i"):
        return number, "binary"
    return number, "exponent" if re.search(r"[eE][+-]?\d", plain) else "decimal"


def canonical(text: Any) -> str:
    """The stored form; ValueError for what is no quantity."""
    number, family = value_of(text)
    number = Fraction(math.ceil(number * _NANO), _NANO)
    if number == 0:
        return "0"
    if family == "binary" and number.denominator == 1 and abs(number) >= 1024:
        return _whole(number, 1024, quantities.BINARY)
    if family == "exponent":
        return _whole(number, 1000, _EXPONENTS)
    return _whole(number, 1000, quantities.DECIMAL)


def _whole(number: Fraction, base: int, suffixes: Mapping[str, int]) -> str:
    """With the largest suffix that leaves a whole number."""
    whole = {power: suffix for suffix, power in suffixes.items() if (number / Fraction(base) ** power).denominator == 1}
    power = max(whole)
    return f"{number / Fraction(base) ** power}{whole[power]}"
