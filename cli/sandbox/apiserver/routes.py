"""What a URL asks for: the kind, namespace, name and subresource behind a path, and the options of its query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from cli.sandbox.apiserver.kinds import Kind, Served
from cli.sandbox.apiserver.statuses import ApiError, no_such_path
from cli.sandbox.apiserver.store import Key

SUBRESOURCES = ("status",)
BINDING = ("pods", "binding")


@dataclass(frozen=True, slots=True)
class Route:
    """A resource path; an empty name means the collection, an empty namespace all of them."""

    kind: Kind
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> Key:
        return Key(self.kind.storage, self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed URL."""

    path: str
    parts: tuple[str, ...]
    query: Mapping[str, str]

    def flag(self, name: str) -> bool:
        """A boolean of the query."""
        return self.query.get(name, "").lower() in ("true", "1")


def parse(url: str) -> Target:
    """Path and query of a request line."""
    split = urlsplit(url)
    parts = tuple(unquote(p) for p in split.path.split("/") if p)
    return Target(split.path, parts, dict(parse_qsl(split.query, keep_blank_values=True)))


def resource(served: Served, target: Target) -> Route:
    """The resource a path names; ApiError 404 when nothing is served there."""
    parts = list(target.parts)
    group, version, rest = _split_group(parts)
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2 and not (group == "" and rest[2] in SUBRESOURCES):
        namespace, rest = rest[1], rest[2:]
    if not 1 <= len(rest) <= 3:
        raise no_such_path()
    kind = served.find(group, version, rest[0])
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if kind is None or bool(namespace) > kind.namespaced or (name and kind.namespaced and not namespace):
        raise no_such_path()
    if subresource and not (subresource == "status" and kind.status) and (kind.resource, subresource) != BINDING:
        raise no_such_path()
    return Route(kind, namespace, name, subresource)


def is_resource(served: Served, target: Target) -> bool:
    """Whether the path lies below a group and version that is served."""
    parts = list(target.parts)
    if not (parts[:1] == ["api"] and len(parts) > 2) and not (parts[:1] == ["apis"] and len(parts) > 3):
        return False
    group, version, _ = _split_group(parts)
    return any((k.group, k.version) == (group, version) for k in served)


def _split_group(parts: list[str]) -> tuple[str, str, list[str]]:
    if parts[:1] == ["api"] and len(parts) > 2:
        return "", parts[1], parts[2:]
    if parts[:1] == ["apis"] and len(parts) > 3:
        return parts[1], parts[2], parts[3:]
    raise no_such_path()


def count(target: Target, name: str) -> int:
    """A number of the query, 0 when absent; ApiError 400 when it is none."""
    text = target.query.get(name) or "0"
    if not text.isdigit():
        raise ApiError(400, "BadRequest", f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)
