"""Kubernetes quantities in the form the API server stores them: 1024Mi becomes 1Gi, 1000 becomes 1k.

Source: apimachinery `api/resource/quantity.go`: the family of the suffix stays, the largest suffix with a whole number
wins, and anything finer than nano is rounded up.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from typing import Any

_SYNTAX = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)")
_EXACT = Context(prec=100)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"": 0, "Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def value_of(text: Any) -> tuple[Decimal, str]:
    """The number, and the family of its suffix (binary, decimal, exponent); ValueError for what is no quantity."""
    found = _SYNTAX.fullmatch(str(text).strip()) if not isinstance(text, bool) else None
    if not found:
        raise ValueError(f"{text!r} is no quantity")
    number, exponent, suffix = Decimal(found[1]), found[2], found[3] or ""
    with localcontext(_EXACT):
        if exponent:
            return number.scaleb(int(exponent[1:])), "exponent"
        if suffix.endswith("i"):
            return number * 2 ** _BINARY[suffix], "binary"
        return number.scaleb(_DECIMAL[suffix]), "decimal"


def canonical(text: Any) -> str:
    """The stored form; ValueError for what is no quantity."""
    with localcontext(_EXACT):
        return _canonical(*value_of(text))


def _canonical(number: Decimal, family: str) -> str:
    number = number.quantize(Decimal("1e-9"), rounding=ROUND_CEILING)
    if number == 0:
        return "0"
    if family == "binary" and number == number.to_integral_value() and abs(number) >= 1024:
        whole = int(number)
        suffix = max((s for s, bits in _BINARY.items() if whole % 2**bits == 0), key=lambda s: _BINARY[s])
        return f"{whole // 2 ** _BINARY[suffix]}{suffix}"
    power = max(p for p in _DECIMAL.values() if number.scaleb(-p) == number.scaleb(-p).to_integral_value())
    mantissa = int(number.scaleb(-power))
    if family == "exponent":
        return f"{mantissa}e{power}" if power else str(mantissa)
    return f"{mantissa}{next(s for s, p in _DECIMAL.items() if p == power)}"
