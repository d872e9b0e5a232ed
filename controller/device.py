"""A device as we mean to publish it, in values that know their type."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from api.health import Ailment


@dataclass(frozen=True, slots=True)
class Version:
    """A semantic version: another type than a string to selectors."""

    text: str


Value = str | int | bool | Version


@dataclass(frozen=True, slots=True)
class Taint:
    """Why pods should not be put on a device."""

    key: str
    value: str
    effect: str
    since: str = ""
    """When it began, RFC 3339; the API server says when it is not known."""

    def encode(self) -> dict[str, str]:
        """As the API writes it."""
        taint = {"key": self.key, "value": self.value, "effect": self.effect}
        return {**taint, "timeAdded": self.since} if self.since else taint


@dataclass(frozen=True, slots=True)
class Device:
    """One entry of `ResourceSlice.spec.devices`."""

    name: str
    attributes: Mapping[str, Value] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)
    """Quantities in canonical form."""
    ailments: tuple[Ailment, ...] = ()
    """What is the matter with it. Which taints that gives is not for the device to say: `controller.taints`."""

    def encode(self, taints: Sequence[Taint] = ()) -> dict[str, Any]:
        """As resource.k8s.io/v1 writes it, keys in order, so that equal devices are equal text."""
        device: dict[str, Any] = {"name": self.name}
        if self.attributes:
            device["attributes"] = {key: _encode_value(value) for key, value in sorted(self.attributes.items())}
        if self.capacity:
            device["capacity"] = {key: {"value": value} for key, value in sorted(self.capacity.items())}
        if taints:
            device["taints"] = [taint.encode() for taint in taints]
        return device


def _encode_value(value: Value) -> dict[str, Any]:
    match value:
        case bool():
            return {"bool": value}
        case int():
            return {"int": value}
        case Version():
            return {"version": value.text}
        case _:
            return {"string": value}
