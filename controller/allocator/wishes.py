"""What a claim asks for, read from the object."""

from dataclasses import dataclass
from typing import Any

from api.refusals import Refused
from controller.allocator.question import Object, reference
from controller.allocator.refusals import Insoluble, Unsupported

_KNOWN_OF_WISH = frozenset(
    ("name", "deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations")
)
_KNOWN_OF_CLASS = frozenset(("selectors", "config", "extendedResourceName"))
_KNOWN_OF_CONSTRAINT = frozenset(("requests", "matchAttribute", "distinctAttribute"))


@dataclass(frozen=True, slots=True, eq=False)
class Wish:
    """One request, or one alternative of a request with `firstAvailable`. Equal to itself only."""

    claim: str
    """`namespace/name` of the claim."""
    request: str
    """The name of the request in the claim."""
    alternative: str
    """The name of the alternative, empty where the request has none."""
    class_name: str
    selectors: tuple[str, ...]
    """CEL expressions; all have to be true."""
    count: int | None
    """None stands for all."""
    admin: bool
    tolerations: tuple[Object, ...]

    @property
    def name(self) -> str:
        """As results and configurations name it: `request` or `request/alternative`."""
        return f"{self.request}/{self.alternative}" if self.alternative else self.request

    @property
    def where(self) -> str:
        """For messages."""
        return f"claim {self.claim}, request {self.name}"


@dataclass(frozen=True, slots=True)
class Request:
    """A request with its wishes: one, or the alternatives from the best to the last."""

    name: str
    wishes: tuple[Wish, ...]
    has_alternatives: bool


@dataclass(frozen=True, slots=True)
class Constraint:
    """An attribute that has to be the same, or different each time, for the devices of some requests (empty: all)."""

    attribute: str
    distinct: bool
    requests: frozenset[str]

    def concerns(self, wish: Wish) -> bool:
        """Whether devices for this wish count."""
        return not self.requests or wish.request in self.requests or wish.name in self.requests


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim's spec."""

    reference: str
    requests: tuple[Request, ...]
    constraints: tuple[Constraint, ...]
    config: tuple[Object, ...]


def read_claim(claim: Object) -> Claim:
    """A ResourceClaim's spec; Refused for fields that are not understood."""
    ref = reference(claim)
    devices = claim["spec"].get("devices") or {}
    _known(devices, frozenset(("requests", "constraints", "config")), f"claim {ref}", "spec.devices.")
    constraints = tuple(
        _constraint(constraint, f"claim {ref}, constraint #{i}")
        for i, constraint in enumerate(devices.get("constraints") or ())
    )
    requests = tuple(_request(ref, request) for request in devices.get("requests") or ())
    return Claim(ref, requests, constraints, tuple(devices.get("config") or ()))


def class_selectors(device_class: Object) -> tuple[str, ...]:
    """The CEL expressions of a DeviceClass; Refused for fields that are not understood."""
    spec = device_class.get("spec") or {}
    where = f"class {device_class['metadata']['name']}"
    _known(spec, _KNOWN_OF_CLASS, where, "spec.")
    return _selectors(spec, where)


def tolerates(tolerations: tuple[Object, ...], taint: Object) -> bool:
    """Whether one of the tolerations fits the taint (dynamic-resource-allocation, resourceclaim/devicetoleration.go)."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    match toleration.get("operator") or "Equal":
        case "Equal":
            return bool((toleration.get("value") or "") == (taint.get("value") or ""))
        case "Exists":
            return True
        case _:
            return False


def _request(ref: str, request: Object) -> Request:
    name = request["name"]
    where = f"claim {ref}, request {name}"
    _known(request, frozenset(("name", "exactly", "firstAvailable")), where)
    alternatives = request.get("firstAvailable") or ()
    if alternatives:
        wishes = tuple(_wish(ref, name, wish["name"], wish) for wish in alternatives)
        return Request(name, wishes, has_alternatives=True)
    if request.get("exactly") is None:
        raise Refused(Unsupported(where, "a request without exactly and firstAvailable"))
    return Request(name, (_wish(ref, name, "", request["exactly"]),), has_alternatives=False)


def _wish(ref: str, request: str, alternative: str, wish: Object) -> Wish:
    name = f"{request}/{alternative}" if alternative else request
    where = f"claim {ref}, request {name}"
    _known(wish, _KNOWN_OF_WISH - ({"adminAccess"} if alternative else set()), where)
    mode = wish.get("allocationMode") or "ExactCount"
    if mode not in ("ExactCount", "All"):
        raise Refused(Unsupported(where, f"allocationMode {mode}"))
    if not wish.get("deviceClassName"):
        raise Refused(Insoluble(where, "no deviceClassName", "name a DeviceClass"))
    return Wish(
        ref,
        request,
        alternative,
        wish["deviceClassName"],
        _selectors(wish, where),
        None if mode == "All" else int(wish.get("count") or 1),
        bool(wish.get("adminAccess")),
        tuple(wish.get("tolerations") or ()),
    )


def _constraint(constraint: Object, where: str) -> Constraint:
    _known(constraint, _KNOWN_OF_CONSTRAINT, where)
    attribute, distinct = constraint.get("matchAttribute"), constraint.get("distinctAttribute")
    if attribute is None and distinct is None:
        raise Refused(Insoluble(where, "it names no attribute", "write matchAttribute or distinctAttribute"))
    names = frozenset(constraint.get("requests") or ())
    return Constraint(str(attribute if attribute is not None else distinct), attribute is None, names)


def _selectors(holder: Object, where: str) -> tuple[str, ...]:
    found: list[str] = []
    for i, selector in enumerate(holder.get("selectors") or ()):
        expression = (selector.get("cel") or {}).get("expression")
        if not expression:
            raise Refused(Unsupported(where, f"selector #{i} without a CEL expression"))
        found.append(expression)
    return tuple(found)


def _known(holder: Object, known: frozenset[str], where: str, prefix: str = "") -> None:
    for field, value in holder.items():
        if field not in known and _given(value):
            raise Refused(Unsupported(where, f"{prefix}{field}"))


def _given(value: Any) -> bool:
    return value not in (None, False, "", [], {}, ())
