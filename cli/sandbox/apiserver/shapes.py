"""How lists and maps of a kind merge: which are atomic, and by which keys items of the others are told apart.

Server-side apply and strategic merge patch both ask here. Where nothing is declared, a list is one value and a map is
merged key by key, which is what the real server does for fields it has no schema for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Shape:
    """One value's place in a merge.

    `lists` says how a list here merges; `keys` name its items where it is a map; `key_defaults` fill absent keys;
    `children` are named fields, `each` is the shape of list items or of the values of a free-form map.
    """

    lists: Literal["atomic", "set", "map"] = "atomic"
    keys: tuple[str, ...] = ()
    key_defaults: Mapping[str, Any] = field(default_factory=dict)
    atomic: bool = False
    children: Mapping[str, Shape] = field(default_factory=dict)
    each: Shape | None = None

    def child(self, name: str) -> Shape:
        """The shape of a field of a map."""
        return self.children.get(name) or self.each or DEDUCED

    def item(self) -> Shape:
        """The shape of a list item."""
        return self.each or DEDUCED

    def is_free_key(self, name: str) -> bool:
        """Whether `name` is a key of a free-form map, not a declared field."""
        return self.each is not None and self.lists == "atomic" and name not in self.children


DEDUCED = Shape()


def fields(**children: Shape) -> Shape:
    """A struct of which only the fields that need a word are given."""
    return Shape(children=children)


def keyed(*keys: str, each: Shape | None = None, defaults: Mapping[str, Any] | None = None) -> Shape:
    """A list whose items are told apart by `keys`."""
    return Shape(lists="map", keys=keys, each=each, key_defaults=defaults or {})


ATOMIC = Shape(atomic=True)
SET = Shape(lists="set")
METADATA = fields(ownerReferences=keyed("uid", each=ATOMIC), finalizers=SET)
CONDITIONS = keyed("type")


def kind_shape(**children: Shape) -> Shape:
    """An object: its metadata, and the fields given."""
    return fields(metadata=METADATA, **children)


def from_schema(schema: Mapping[str, Any]) -> Shape:
    """The shape an OpenAPI v3 schema with Kubernetes' extensions describes.

    Source: x-kubernetes-list-type, -list-map-keys and -map-type as in the apiextensions.k8s.io/v1 reference.
    """
    if schema.get("type") == "array":
        each = from_schema(schema.get("items") or {})
        match schema.get("x-kubernetes-list-type", "atomic"):
            case "map":
                item_fields = (schema.get("items") or {}).get("properties") or {}
                names = tuple(schema.get("x-kubernetes-list-map-keys") or ())
                defaults = {n: item_fields[n]["default"] for n in names if "default" in item_fields.get(n, {})}
                return keyed(*names, each=each, defaults=defaults)
            case "set":
                return Shape(lists="set", each=each)
            case _:
                return DEDUCED
    if schema.get("x-kubernetes-map-type") == "atomic":
        return ATOMIC
    children = {name: from_schema(sub) for name, sub in (schema.get("properties") or {}).items()}
    extra = schema.get("additionalProperties")
    return Shape(children=children, each=from_schema(extra) if isinstance(extra, Mapping) else None)


def from_object_schema(schema: Mapping[str, Any]) -> Shape:
    """The shape of a whole custom resource; its metadata is like that of every object."""
    shape = from_schema(schema)
    return Shape(children={**shape.children, "metadata": METADATA}, each=shape.each)
