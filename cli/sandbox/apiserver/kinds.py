"""What a served kind is, and which kinds are served right now.

The built-in ones are listed in `builtin`; those of custom resources join at run time, see `crds`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cli.sandbox.apiserver.shapes import DEDUCED, Shape

Renames = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """One served kind. `selectable` are the field selectors beyond metadata.name and metadata.namespace."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    singular: str = ""
    short_names: tuple[str, ...] = ()
    status: bool = False
    keeps_status_on_create: bool = False
    generation: bool = False
    create_on_update: bool = False
    unconditional_update: bool = True
    returns_deleted: bool = False
    selectable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    selector_complaint: str = "field label not supported: {label}"
    well_known_only: bool = False
    shape: Shape = DEDUCED
    schema: Mapping[str, Any] | None = None
    stored_as: tuple[str, str] | None = None
    renames: Renames = ()
    printer_columns: tuple[Mapping[str, Any], ...] = ()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_version_kind(self) -> str:
        """As messages name it: resource.k8s.io/v1, Kind=ResourceSlice."""
        return f"{self.group}/{self.version}, Kind={self.kind}"

    @property
    def resource(self) -> str:
        """Plural and group, as messages name it: resourceslices.resource.k8s.io."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage(self) -> str:
        """Under which resource the objects are kept; two kinds may show the same ones."""
        if self.stored_as is None:
            return self.resource
        group, plural = self.stored_as
        return f"{plural}.{group}" if group else plural

    @property
    def custom(self) -> bool:
        return self.schema is not None

    def shown(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """A stored object under this kind's names."""
        back = {old: new for new, old in self.renames}
        named = {back.get(k, k): v for k, v in stored.items()}
        return {"kind": self.kind, "apiVersion": self.api_version} | {
            k: v for k, v in named.items() if k not in ("kind", "apiVersion")
        }

    def kept(self, shown: Mapping[str, Any]) -> dict[str, Any]:
        """An object of this kind under the names it is stored with."""
        there = dict(self.renames)
        return {there.get(k, k): v for k, v in shown.items()}


class Served:
    """The kinds served right now."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._lock = threading.Lock()
        self._kinds = {(k.group, k.version, k.plural): k for k in kinds}

    def __iter__(self) -> Iterator[Kind]:
        with self._lock:
            return iter(tuple(self._kinds.values()))

    def add(self, kind: Kind) -> None:
        """Serve one more kind, or another definition of it."""
        with self._lock:
            self._kinds[kind.group, kind.version, kind.plural] = kind

    def remove(self, resource: str) -> None:
        """Serve no version of this resource any more."""
        with self._lock:
            self._kinds = {key: kind for key, kind in self._kinds.items() if kind.resource != resource}

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """The kind at /apis/GROUP/VERSION/PLURAL."""
        with self._lock:
            return self._kinds.get((group, version, plural))

    def of_object(self, obj: Mapping[str, Any]) -> Kind:
        """The kind an object says it is of; KeyError when it is not served."""
        for kind in self:
            if (kind.api_version, kind.kind) == (obj.get("apiVersion"), obj.get("kind")):
                return kind
        raise KeyError(f"{obj.get('apiVersion')} {obj.get('kind')} is not served")

    def named(self, name: str) -> Kind:
        """The kind with this plural, plural.group, or kind name; KeyError when there is none."""
        for kind in self:
            if name in (kind.plural, kind.resource, kind.kind):
                return kind
        raise KeyError(f"{name} is not served")
