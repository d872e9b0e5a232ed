"""Whether one more device keeps to a constraint, while the search adds devices and takes them back.

Source: dynamic-resource-allocation, structured/internal/incubating: matchAttributeConstraint and constraint.go.
"""

from typing import Any, Protocol

from controller.allocator.pools import Device
from controller.allocator.wishes import Constraint, Wish

_SCALARS = ("string", "int", "bool", "version")
Value = tuple[str, Any]
"""A type's name and the value, so that 1 and true are not the same."""


class Tracker(Protocol):
    """One constraint during one search."""

    def add(self, wish: Wish, device: Device) -> bool:
        """Count the device in; False, and nothing is counted, where it breaks the constraint."""

    def remove(self, wish: Wish, device: Device) -> None:
        """Take back the last `add` that was True."""


def tracker(constraint: Constraint) -> Tracker:
    """A fresh one."""
    return _Distinct(constraint) if constraint.distinct else _Match(constraint)


def value_of(device: Device, attribute: str) -> Value | None:
    """The attribute's type and value; None where the device does not have it.

    Lists come as the type "list": the feature for them is off by default, and then nothing equals them.
    """
    given = device.attribute(attribute)
    if given is None:
        return None
    return next(((kind, given[kind]) for kind in _SCALARS if given.get(kind) is not None), ("list", None))


class _Match:
    """The first device sets the value, the others have to have it."""

    def __init__(self, constraint: Constraint) -> None:
        self._constraint = constraint
        self._value: Value | None = None
        self._count = 0

    def add(self, wish: Wish, device: Device) -> bool:
        if not self._constraint.concerns(wish):
            return True
        value = value_of(device, self._constraint.attribute)
        if value is None:
            return False
        if self._count == 0:
            self._value = value
        elif value[0] == "list" or value != self._value:
            return False
        self._count += 1
        return True

    def remove(self, wish: Wish, device: Device) -> None:  # noqa: ARG002  # the protocol's
        if self._constraint.concerns(wish):
            self._count -= 1


class _Distinct:
    """No two devices have the same value."""

    def __init__(self, constraint: Constraint) -> None:
        self._constraint = constraint
        self._values: list[Value] = []

    def add(self, wish: Wish, device: Device) -> bool:
        if not self._constraint.concerns(wish):
            return True
        value = value_of(device, self._constraint.attribute)
        if value is None or value in self._values or (value[0] == "list" and self._values):
            return False
        self._values.append(value)
        return True

    def remove(self, wish: Wish, device: Device) -> None:  # noqa: ARG002  # the protocol's
        if self._constraint.concerns(wish):
            self._values.pop()
