"""Kubernetes quantities: amounts such as 81559Mi, read exactly and written in the form that the API server keeps."""

import re
from collections.abc import Mapping
from fractions import Fraction

BINARY: Mapping[str, int] = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
"""Powers of 1024."""
DECIMAL: Mapping[str, int] = {"n": -3, "u": -2, "m": -1, "": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
"""Powers of 1000."""
_QUANTITY = re.compile(
    r"([+-]?)(\d+\.?\d*|\.\d+)(?:(Ki|Mi|Gi|Ti|Pi|Ei)|[eE]([+-]?\d{1,3})|([numkMGTPE]?))",
    re.ASCII,
)


def parse(text: str) -> Fraction:
    """The exact value of a quantity; ValueError when it is none (apimachinery, resource.Quantity)."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no quantity; one looks like 80Gi, 1500m or 1e3")
    sign, digits, binary, exponent, decimal = match.groups()
    if binary is not None:
        factor = Fraction(1024 ** BINARY[binary])
    elif exponent is not None:
        factor = Fraction(10) ** int(exponent)
    else:
        factor = Fraction(1000) ** DECIMAL[decimal or ""]
    return Fraction(f"{sign}{digits.rstrip('.')}") * factor


def of_bytes(count: int) -> str:
    """A whole number of bytes in canonical form: 85520809984 is `81559Mi`.

    Canonical, so that what the API server stores is what was sent: the largest suffix that leaves a whole number, binary
    where 1024 divides the count, decimal otherwise. ValueError for negative counts.
    """
    if count < 0:
        raise ValueError(f"{count} bytes are no capacity")
    base, suffixes = (1024, ("", *BINARY)) if count % 1024 == 0 else (1000, ("", "k", "M", "G", "T", "P", "E"))
    power = 0
    while count and count % base == 0 and power < len(suffixes) - 1:
        count //= base
        power += 1
    return f"{count}{suffixes[power]}"


def same(one: str, other: str) -> bool:
    """Whether two quantities are the same amount, however they are written."""
    return one == other or parse(one) == parse(other)
