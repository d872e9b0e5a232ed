"""Which objects a label selector or a field selector picks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from cli.sandbox.apiserver.kinds import Kind
from cli.sandbox.apiserver.statuses import bad_request

Test = Callable[[Mapping[str, Any]], bool]

_KEY = r"(?:[A-Za-z0-9.-]+/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_VALUE = r"[A-Za-z0-9_.-]*"
_IN = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^)]*)\)")
_COMPARE = re.compile(rf"({_KEY})\s*(==|=|!=|>|<)\s*({_VALUE})")
_EXISTS = re.compile(rf"(!?)\s*({_KEY})")


def labels(text: str) -> Test:
    """The test of a label selector; ApiError 400 for one that cannot be parsed."""
    tests: list[Test] = []
    rest = text.strip()
    while rest:
        test, rest = _label_term(rest, text)
        tests.append(test)
        if rest and (not rest.startswith(",") or not rest[1:].strip()):
            raise bad_request(f"unable to parse requirement: found {rest!r} in label selector {text!r}")
        rest = rest[1:].strip()
    return lambda labelled: all(test(labelled) for test in tests)


def _label_term(rest: str, text: str) -> tuple[Test, str]:
    if found := _IN.match(rest):
        key, operator = found[1], found[2]
        values = frozenset(v.strip() for v in found[3].split(","))
        wanted = operator == "in"
        return (lambda x: (x.get(key) in values) is wanted), rest[found.end() :].strip()
    if found := _COMPARE.match(rest):
        key, operator, value = found[1], found[2], found[3]
        return _comparison(key, operator, value), rest[found.end() :].strip()
    if found := _EXISTS.match(rest):
        key, there = found[2], not found[1]
        return (lambda x: (key in x) is there), rest[found.end() :].strip()
    raise bad_request(f"unable to parse requirement: found {rest!r} in label selector {text!r}")


def _comparison(key: str, operator: str, value: str) -> Test:
    match operator:
        case "=" | "==":
            return lambda x: x.get(key) == value
        case "!=":
            return lambda x: x.get(key) != value
        case _:
            return lambda x: _ordered(x.get(key), operator, value)


def _ordered(have: str | None, operator: str, value: str) -> bool:
    if have is None or not have.lstrip("-").isdigit() or not value.lstrip("-").isdigit():
        return False
    return int(have) > int(value) if operator == ">" else int(have) < int(value)


def fields(kind: Kind, text: str) -> Test:
    """The test of a field selector on stored objects; ApiError 400 for a field this kind cannot be selected by."""
    tests: list[Test] = []
    for term in filter(None, text.split(",")):
        found = re.fullmatch(r"([^=!]+)(==|=|!=)(.*)", term)
        if not found:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        label, operator, value = found[1].strip(), found[2], found[3]
        path = _path(kind, label)
        tests.append(_field_test(path, value, wanted=operator != "!="))
    return lambda obj: all(test(obj) for test in tests)


def _path(kind: Kind, label: str) -> tuple[str, ...]:
    if label == "metadata.name" or (label == "metadata.namespace" and (kind.namespaced or kind.well_known_only)):
        return tuple(label.split("."))
    path = kind.selectable.get(label)
    if path is None and kind.well_known_only:
        raise bad_request(f'"{label}" is not a known field selector: only "metadata.name", "metadata.namespace"')
    if path is None:
        raise bad_request(kind.selector_complaint.format(label=label))
    return path


def _field_test(path: tuple[str, ...], value: str, *, wanted: bool) -> Test:
    return lambda obj: (_value(obj, path) == value) is wanted


def _value(obj: Any, path: tuple[str, ...]) -> str:
    for step in path:
        obj = obj.get(step) if isinstance(obj, Mapping) else None
    if path == ("spec", "unschedulable") and obj is None:
        return "false"
    if isinstance(obj, bool):
        return "true" if obj else "false"
    return "" if obj is None else str(obj)
