"""The syntax of names and values that several kinds of resource.k8s.io share.

Source: `pkg/apis/resource/validation/validation.go` and `core/validation` of Kubernetes 1.37.2; lengths are bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from cli.sandbox.apiserver.statuses import (
    Cause,
    duplicate,
    invalid_value,
    required,
    too_long,
    too_many,
    unsupported_value,
)

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_NAME = re.compile(rf"(?:(?P<domain>{_SUBDOMAIN})/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_C_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = r"(0|[1-9]\d*)"
_PRE = r"(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)"
SEMVER = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRE}(\.{_PRE})*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?")

TAINT_EFFECTS = ("NoExecute", "NoSchedule", "None")
_RULE_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_RULE_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_LABEL}(\\.{_LABEL})*')"
)

_RULE_LABEL_NAME = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_RULE_LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)

_RULE_C_IDENTIFIER = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters "
    "or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
)

ItemCheck = Callable[[Any, str], list[Cause]]


def utf8_bytes(text: str) -> int:
    """Length in bytes."""
    return len(text.encode())


def label(value: Any, at: str) -> list[Cause]:
    """A DNS label: names of devices, requests, counters."""
    text = value or ""
    found = []
    if utf8_bytes(text) > 63:
        found.append(invalid_value(at, text, "must be no more than 63 characters"))
    if not re.fullmatch(_LABEL, text):
        found.append(invalid_value(at, text, _RULE_LABEL))
    return found


def subdomain(value: Any, at: str) -> list[Cause]:
    """A DNS subdomain of up to 253 bytes."""
    text = value or ""
    found = []
    if utf8_bytes(text) > 253:
        found.append(invalid_value(at, text, "must be no more than 253 characters"))
    if not re.fullmatch(_SUBDOMAIN, text):
        found.append(invalid_value(at, text, _RULE_SUBDOMAIN))
    return found


def driver(value: Any, at: str) -> list[Cause]:
    """A driver's name: required, a DNS subdomain of up to 63 bytes in either case."""
    if not value:
        return [required(at)]
    found = [too_long(at, 63)] if utf8_bytes(value) > 63 else []
    return found + ([] if re.fullmatch(_SUBDOMAIN, value.lower()) else [invalid_value(at, value, _RULE_SUBDOMAIN)])


def pool_name(value: Any, at: str) -> list[Cause]:
    """Subdomains joined by slashes, up to 253 bytes."""
    if not value:
        return [required(at)]
    found = [too_long(at, 253)] if utf8_bytes(value) > 253 else []
    return found + [cause for part in value.split("/") for cause in subdomain(part, at)]


def qualified_name(value: str, at: str) -> list[Cause]:
    """The key of an attribute or a capacity. More than one slash goes unchecked, as on the real server."""
    parts = value.split("/")
    if len(parts) == 1:
        return _c_identifier(parts[0], at)
    if len(parts) > 2:
        return []
    found = driver(parts[0], at) if parts[0] else [invalid_value(at, "", "the domain must not be empty")]
    return found + (_c_identifier(parts[1], at) if parts[1] else [invalid_value(at, "", "the name must not be empty")])


def fully_qualified_name(value: str, at: str) -> list[Cause]:
    """A qualified name that has its domain, in lower case here."""
    found = qualified_name(value, at)
    domain, slash, _ = value.partition("/")
    if domain != domain.lower() and value.count("/") == 1:
        found.append(invalid_value(at, domain, f"prefix: {_RULE_SUBDOMAIN}"))
    if not slash:
        rule = "a fully qualified name must be a domain and a name separated by a slash"
        found.append(invalid_value(at, value, rule))
    return found


def extended_resource(name: str, at: str) -> list[Cause]:
    """A resource's name that pods can ask for: with a domain that is not Kubernetes' own, and fit for a quota's name."""
    found = []
    if "/" not in name:
        rule = "a name must be a domain-prefixed path, such as 'example.com/my-prop'"
        found.append(invalid_value(at, name, rule))
    elif "kubernetes.io/" in name:
        found.append(invalid_value(at, name, 'must not have "kubernetes.io/" domain'))
    if name.startswith("requests."):
        found.append(invalid_value(at, name, 'must not have "requests." prefix'))
    return found + [invalid_value(at, name, cause.message) for cause in label_name(f"requests.{name}", at)]


def _c_identifier(value: str, at: str) -> list[Cause]:
    found = [too_long(at, 32)] if utf8_bytes(value) > 32 else []
    if not _C_IDENTIFIER.fullmatch(value):
        found.append(invalid_value(at, value, _RULE_C_IDENTIFIER))
    return found


def label_name(value: Any, at: str) -> list[Cause]:
    """The key of a label or a taint."""
    if not value:
        return [invalid_value(at, "", "name part must be non-empty"), invalid_value(at, "", _RULE_LABEL_NAME)]
    match = _LABEL_NAME.fullmatch(value)
    if match is None:
        return [invalid_value(at, value, _RULE_LABEL_NAME)]
    if len(match["domain"] or "") > 253:
        return [invalid_value(at, value, "prefix part must be no more than 253 bytes")]
    return []


def label_value(value: Any, at: str) -> list[Cause]:
    """The value of a label or a taint."""
    if not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
        return [invalid_value(at, value, _RULE_LABEL_VALUE)]
    return []


def toleration(value: Mapping[str, Any], at: str) -> list[Cause]:
    """A toleration of a device taint, defaults filled in."""
    found = label_name(value["key"], f"{at}.key") if value.get("key") else []
    match value.get("operator"):
        case "Exists":
            if value.get("value"):
                found.append(invalid_value(f"{at}.value", value["value"], "must be empty for operator `Exists`"))
        case "Equal":
            found += label_value(value.get("value", ""), f"{at}.value")
        case other:
            found.append(unsupported_value(f"{at}.operator", other, ("Equal", "Exists")))
    if value.get("effect") and value["effect"] not in TAINT_EFFECTS:
        found.append(unsupported_value(f"{at}.effect", value["effect"], TAINT_EFFECTS))
    return found


def items(values: Sequence[Any], limit: int, check: ItemCheck, at: str) -> list[Cause]:
    """Each item of a list; a list over its limit is only told that, so that a huge one costs nothing."""
    if len(values) > limit:
        return [too_many(at, len(values), limit)]
    return [cause for i, value in enumerate(values) for cause in check(value, f"{at}[{i}]")]


def unique(
    values: Sequence[Any],
    limit: int,
    check: ItemCheck,
    key: Callable[[Any], Hashable],
    at: str,
    *,
    shows_item: bool = False,
) -> list[Cause]:
    """Each item of a list without duplicates, of which the complaint shows the key or, with `shows_item`, all."""
    if len(values) > limit:
        return [too_many(at, len(values), limit)]
    found = items(values, limit, check, at)
    seen: set[Hashable] = set()
    for i, value in enumerate(values):
        if key(value) in seen:
            found.append(duplicate(f"{at}[{i}]", value if shows_item else key(value)))
        seen.add(key(value))
    return found
