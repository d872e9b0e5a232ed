"""Version numbers as drivers write them, made into the semantic versions that Kubernetes takes."""

import re

_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*)?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
_NUMBERS = re.compile(r"\s*v?(\d{1,18}(?:\.\d{1,18})*)", re.ASCII)
_VERSION_MAX = 64
"""Bytes of a version attribute (resource.k8s.io/v1, DeviceAttributeMaxValueLength)."""


def is_semver(text: str) -> bool:
    """Whether the API server takes it as a version attribute: semver 2.0.0, at most 64 bytes, numbers below 2^64."""
    match = _SEMVER.fullmatch(text)
    return match is not None and len(text) <= _VERSION_MAX and all(int(part) < 2**64 for part in match.groups())


def normalise(text: str) -> str | None:
    """Three numbers without leading zeros from what a driver calls its version; None when it begins with no number.

    580.105.08 is 580.105.8, 550.54 is 550.54.0, and of four parts or a suffix the first three numbers are kept
    (Case I1: the API server refuses a whole slice for 580.105.08). What is lost may matter to somebody: publish the
    driver's own text beside it.
    """
    match = _NUMBERS.match(text)
    if match is None:
        return None
    numbers = [int(part) for part in match[1].split(".")][:3]
    return ".".join(str(number) for number in numbers + [0] * (3 - len(numbers)))
