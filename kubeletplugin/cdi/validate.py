"""What is wrong with a CDI document.

Stricter than the published schema, which lets unknown fields pass and leaves `env` unchecked, and at least as strict as
the reference library that runtimes use: one fault, and every device of the file is "unresolvable" for them. Asked before
each write, when a file is read back, and of what nvidia-ctk prints.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kubeletplugin.cdi.spec import VERSIONS, minimum_version

_QUALIFIER = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_ANNOTATION = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_HOOKS = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
_NODE_TYPES = ("", "b", "c", "u", "p")
_PERMISSIONS = re.compile(r"[rwm]*|none")
_GIDS_MAX = 2**32 - 1
_NUMBER_MAX = 2**63 - 1
_PATH_MAX = 4096


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault."""

    path: str
    """`devices[0].containerEdits.env[2]`; empty for the document as a whole."""
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


@dataclass(frozen=True, slots=True)
class Invalid:
    """A CDI document that no runtime would take."""

    source: str
    """Where it comes from: a path, or who wrote it."""
    problems: tuple[Problem, ...]
    remedy: str

    @property
    def what(self) -> str:
        return f"{self.source} is no valid CDI document: {'; '.join(map(str, self.problems))}"


def problems(document: Any) -> tuple[Problem, ...]:
    """All faults of a parsed document, with their places; none means that any runtime of its version reads it."""
    return tuple(_document(document))


_Check = Callable[[str, Any], Iterator[Problem]]


def _document(document: Any) -> Iterator[Problem]:
    fields: dict[str, _Check] = {
        "cdiVersion": _version,
        "kind": _kind,
        "annotations": _annotations,
        "devices": _devices,
        "containerEdits": _edits,
    }
    found = tuple(_object("", document, fields, required=("cdiVersion", "kind", "devices")))
    yield from found
    if isinstance(document, Mapping) and document.get("cdiVersion") in VERSIONS:
        needed = minimum_version(document)
        if VERSIONS.index(document["cdiVersion"]) < VERSIONS.index(needed):
            yield Problem(
                "cdiVersion", f"{document['cdiVersion']} is too low for what is used here, which needs {needed}"
            )


def _version(path: str, value: Any) -> Iterator[Problem]:
    if value not in VERSIONS:
        yield Problem(path, f"{value!r} is no version of CDI; the newest is {VERSIONS[-1]}")


def _kind(path: str, value: Any) -> Iterator[Problem]:
    vendor, slash, class_ = value.partition("/") if isinstance(value, str) else ("", "", "")
    if not slash:
        yield Problem(path, f"{value!r} is not vendor/class")
        return
    for what, text in (("vendor", vendor), ("class", class_)):
        if _QUALIFIER.fullmatch(text) is None:
            yield Problem(
                path, f"{text!r} is no {what}: it begins with a letter, ends with a letter or digit, and has -_. inside"
            )


def _annotations(path: str, value: Any) -> Iterator[Problem]:
    if not isinstance(value, Mapping):
        yield Problem(path, f"{_shape(value)} where an object belongs")
        return
    for key, text in value.items():
        if not isinstance(key, str) or _ANNOTATION.fullmatch(key.lower()) is None:
            yield Problem(path, f"{key!r} is no annotation key")
        yield from _text(f"{path}.{key}", text)


def _devices(path: str, value: Any) -> Iterator[Problem]:
    yield from _each(path, value, _device)
    if value == []:
        yield Problem(path, "empty; at least one device is needed")
    yield from _unique(path, value, "name")


def _device(path: str, value: Any) -> Iterator[Problem]:
    fields: dict[str, _Check] = {"name": _device_name, "annotations": _annotations, "containerEdits": _edits}
    yield from _object(path, value, fields, required=("name", "containerEdits"))
    edits = value.get("containerEdits") if isinstance(value, Mapping) else None
    if isinstance(edits, Mapping) and not any(edits.values()):
        yield Problem(
            f"{path}.containerEdits", "empty; a device needs at least one edit, or no device of the file resolves"
        )


def _device_name(path: str, value: Any) -> Iterator[Problem]:
    if not isinstance(value, str) or _DEVICE.fullmatch(value) is None:
        yield Problem(path, f"{value!r} is no device name: letters and digits at both ends, -_.: inside")


def _edits(path: str, value: Any) -> Iterator[Problem]:
    fields: dict[str, _Check] = {
        "env": lambda at, items: _each(at, items, _env),
        "deviceNodes": lambda at, items: _each(at, items, _node),
        "mounts": lambda at, items: _each(at, items, _mount),
        "hooks": lambda at, items: _each(at, items, _hook),
        "additionalGids": lambda at, items: _each(at, items, _gid),
        "netDevices": _net_devices,
        "intelRdt": _rdt,
    }
    yield from _object(path, value, fields)


def _env(path: str, value: Any) -> Iterator[Problem]:
    yield from _text(path, value)
    if isinstance(value, str) and value.find("=") <= 0:
        yield Problem(path, f"{value!r} is not NAME=value")


def _node(path: str, value: Any) -> Iterator[Problem]:
    fields: dict[str, _Check] = {
        "path": _absolute,
        "hostPath": _absolute,
        "type": _one_of(_NODE_TYPES),
        "major": _whole(_NUMBER_MAX),
        "minor": _whole(_NUMBER_MAX),
        "fileMode": _whole(0o7777),
        "permissions": _permissions,
        "uid": _whole(_GIDS_MAX),
        "gid": _whole(_GIDS_MAX),
    }
    yield from _object(path, value, fields, required=("path",))


def _mount(path: str, value: Any) -> Iterator[Problem]:
    fields: dict[str, _Check] = {
        # A mount of type tmpfs has a word for its source, so only bind mounts are asked for a path.
        "hostPath": _filled
        if isinstance(value, Mapping) and value.get("type") not in (None, "", "bind")
        else _absolute,
        "containerPath": _absolute,
        "options": lambda at, items: _each(at, items, _filled),
        "type": _text,
    }
    yield from _object(path, value, fields, required=("hostPath", "containerPath"))


def _hook(path: str, value: Any) -> Iterator[Problem]:
    fields: dict[str, _Check] = {
        "hookName": _one_of(_HOOKS),
        "path": _absolute,
        "args": lambda at, items: _each(at, items, _text),
        "env": lambda at, items: _each(at, items, _env),
        "timeout": _whole(_NUMBER_MAX),
    }
    yield from _object(path, value, fields, required=("hookName", "path"))


def _gid(path: str, value: Any) -> Iterator[Problem]:
    yield from _whole(_GIDS_MAX)(path, value)


def _net_devices(path: str, value: Any) -> Iterator[Problem]:
    yield from _each(path, value, _net_device)
    for field in ("hostInterfaceName", "name"):
        yield from _unique(path, value, field)


def _net_device(path: str, value: Any) -> Iterator[Problem]:
    yield from _object(
        path, value, {"hostInterfaceName": _filled, "name": _filled}, required=("hostInterfaceName", "name")
    )


def _rdt(path: str, value: Any) -> Iterator[Problem]:
    fields: dict[str, _Check] = {
        "closID": _clos,
        "l3CacheSchema": _text,
        "memBwSchema": _text,
        "schemata": lambda at, items: _each(at, items, _text),
        "enableMonitoring": _flag,
    }
    yield from _object(path, value, fields)


def _clos(path: str, value: Any) -> Iterator[Problem]:
    """A directory's name below /sys/fs/resctrl, or `/` for the top."""
    yield from _text(path, value)
    if not isinstance(value, str) or value == "/":
        return
    if value in {".", ".."} or "/" in value or "\n" in value or len(value.encode(errors="replace")) >= _PATH_MAX:
        yield Problem(path, f"{value[:64]!r} is no name of a directory")


def _object(
    path: str, value: Any, fields: Mapping[str, _Check], *, required: tuple[str, ...] = ()
) -> Iterator[Problem]:
    if not isinstance(value, Mapping):
        yield Problem(path, f"{_shape(value)} where an object belongs")
        return
    prefix = f"{path}." if path else ""
    for field in required:
        if field not in value:
            yield Problem(f"{prefix}{field}", "missing")
    for field, content in value.items():
        check = fields.get(field)
        if check is None:
            yield Problem(f"{prefix}{field}", "no field of CDI")
        else:
            yield from check(f"{prefix}{field}", content)


def _each(path: str, value: Any, check: _Check) -> Iterator[Problem]:
    if not isinstance(value, list):
        yield Problem(path, f"{_shape(value)} where a list belongs")
        return
    for index, item in enumerate(value):
        yield from check(f"{path}[{index}]", item)


def _unique(path: str, value: Any, field: str) -> Iterator[Problem]:
    """That no two objects of a list have the same text in this field."""
    seen: set[str] = set()
    for index, item in enumerate(value if isinstance(value, list) else ()):
        text = item.get(field) if isinstance(item, Mapping) else None
        if isinstance(text, str):
            if text in seen:
                yield Problem(f"{path}[{index}].{field}", f"{text!r} occurs twice")
            seen.add(text)


def _text(path: str, value: Any) -> Iterator[Problem]:
    if not isinstance(value, str):
        yield Problem(path, f"{_shape(value)} where a text belongs")
    elif "\0" in value:
        yield Problem(path, f"{value!r} has a null character in it")
    elif not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        yield Problem(path, f"{value!r} is no UTF-8")


def _filled(path: str, value: Any) -> Iterator[Problem]:
    yield from _text(path, value)
    if value == "":
        yield Problem(path, "empty")


def _absolute(path: str, value: Any) -> Iterator[Problem]:
    yield from _text(path, value)
    if isinstance(value, str) and not value.startswith("/"):
        yield Problem(path, f"{value!r} is no absolute path")


def _permissions(path: str, value: Any) -> Iterator[Problem]:
    if not isinstance(value, str) or _PERMISSIONS.fullmatch(value) is None:
        yield Problem(path, f"{value!r} is not made of r, w and m, nor none")


def _flag(path: str, value: Any) -> Iterator[Problem]:
    if not isinstance(value, bool):
        yield Problem(path, f"{_shape(value)} where true or false belongs")


def _whole(most: int) -> _Check:
    def check(path: str, value: Any) -> Iterator[Problem]:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
            yield Problem(path, f"{value!r} is no whole number from 0 to {most}")

    return check


def _one_of(choices: tuple[str, ...]) -> _Check:
    def check(path: str, value: Any) -> Iterator[Problem]:
        if value not in choices:
            yield Problem(path, f"{value!r} is none of {', '.join(filter(None, choices))}")

    return check


def _shape(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case Mapping():
            return "an object"
        case _:
            return type(value).__name__
