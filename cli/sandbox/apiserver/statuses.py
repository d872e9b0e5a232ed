"""How the API server says no: the Status body of each refusal.

Wording, reasons and the choice of details follow Kubernetes 1.37.2 (apimachinery `api/errors` and
`util/validation/field`), because clients read them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cli.sandbox.apiserver.kinds import Kind

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


@dataclass(frozen=True, slots=True)
class Cause:
    """One fault of one field; `what` is the API's word for the sort of fault, for example FieldValueInvalid."""

    what: str
    field: str
    message: str

    def text(self) -> str:
        return f"{self.field}: {self.message}"


class ApiError(Exception):
    """A request refused with a Status body."""

    def __init__(
        self, code: int, reason: str, message: str, details: Mapping[str, Any] | None = None, **extra: Any
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.extra = extra

    def body(self) -> dict[str, Any]:
        """The Status object to send."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.extra.get("metadata", {}),
            "status": "Failure",
            "message": self.message,
            **({"reason": self.reason} if self.reason else {}),
            "code": self.code,
        }
        if self.details is not None:
            status["details"] = dict(self.details)
        return status


def _shown(value: Any) -> str:
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def invalid_value(field: str, value: Any, detail: str) -> Cause:
    """A value that breaks a rule of its field."""
    return Cause("FieldValueInvalid", field, f"Invalid value: {_shown(value)}: {detail}")


def wrong_type(field: str, value: Any, detail: str) -> Cause:
    """A value of another JSON type than the schema wants."""
    return Cause("FieldValueTypeInvalid", field, f"Invalid value: {_shown(value)}: {detail}")


def required(field: str, detail: str = "") -> Cause:
    """A field that is not there."""
    return Cause("FieldValueRequired", field, "Required value" + (f": {detail}" if detail else ""))


def duplicate(field: str, value: Any) -> Cause:
    """A second entry under one key."""
    return Cause("FieldValueDuplicate", field, f"Duplicate value: {_shown(value)}")


def unsupported_value(field: str, value: Any, supported: Iterable[str]) -> Cause:
    """A value outside an enumeration."""
    wanted = ", ".join(_shown(v) for v in supported)
    return Cause("FieldValueNotSupported", field, f"Unsupported value: {_shown(value)}: supported values: {wanted}")


def forbidden_field(field: str, detail: str) -> Cause:
    """A field that may not be set here."""
    return Cause("FieldValueForbidden", field, f"Forbidden: {detail}")


def too_long(field: str, limit: int) -> Cause:
    """A string over its limit, in bytes."""
    return Cause("FieldValueTooLong", field, f"Too long: may not be more than {limit} bytes")


def too_many(field: str, count: int, limit: int) -> Cause:
    """A list or map with too many entries."""
    return Cause("FieldValueTooMany", field, f"Too many: {count}: must have at most {limit} item{'s' * (limit != 1)}")


def bad_request(message: str) -> ApiError:
    """400: the request cannot be understood."""
    return ApiError(400, "BadRequest", message)


def not_found(kind: Kind, name: str) -> ApiError:
    """404 for one object."""
    return ApiError(404, "NotFound", f'{kind.resource} "{name}" not found', _about(kind, name))


def already_exists(kind: Kind, name: str) -> ApiError:
    """409 for a create under a taken name."""
    return ApiError(409, "AlreadyExists", f'{kind.resource} "{name}" already exists', _about(kind, name))


def conflict(kind: Kind, name: str, why: str = MODIFIED, *, by_kind: bool = False) -> ApiError:
    """409 for a write that expected another version or another object; a delete names the kind, not the resource."""
    of = (f"{kind.kind}.{kind.group}" if kind.group else kind.kind) if by_kind else kind.resource
    details = _about(kind, name) | ({"kind": kind.kind} if by_kind else {})
    return ApiError(409, "Conflict", f'Operation cannot be fulfilled on {of} "{name}": {why}', details)


def invalid(kind: Kind, name: str, causes: Iterable[Cause], *, by_resource: bool = False) -> ApiError:
    """422 with every cause, each said once; one check of the real server names the resource instead of the kind."""
    said = tuple(dict.fromkeys(causes))
    texts = [c.text() for c in said]
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    called = kind.plural if by_resource else kind.kind
    group_kind = f"{called}.{kind.group}" if kind.group else called
    details: dict[str, Any] = {"name": name} if name else {}
    if kind.group:
        details["group"] = kind.group
    details["kind"] = called
    details["causes"] = [{"reason": c.what, "message": c.message, "field": c.field} for c in said]
    return ApiError(422, "Invalid", f'{group_kind} "{name}" is invalid: {joined}', details)


def forbidden(kind: Kind | None, name: str, why: str) -> ApiError:
    """403, with the words of whoever refused."""
    if kind is None:
        return ApiError(403, "Forbidden", f"forbidden: {why}", {})
    of = f' "{name}"' if name else ""
    return ApiError(403, "Forbidden", f"{kind.resource}{of} is forbidden: {why}", _about(kind, name))


def expired(message: str, **metadata: Any) -> ApiError:
    """410: the version asked for is no longer kept."""
    return ApiError(410, "Expired", message, metadata=metadata)


def method_not_allowed() -> ApiError:
    """405 for a verb that the path does not offer."""
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def invalid_options(cause: Cause) -> ApiError:
    """422 for the options of a patch."""
    causes = [{"reason": cause.what, "message": cause.message, "field": cause.field}]
    details = {"group": "meta.k8s.io", "kind": "PatchOptions", "causes": causes}
    return ApiError(422, "Invalid", f'PatchOptions.meta.k8s.io "" is invalid: {cause.text()}', details)


def no_such_path() -> ApiError:
    """404 for a path below a served group that names no resource."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def _about(kind: Kind, name: str) -> dict[str, Any]:
    details: dict[str, Any] = {"name": name} if name else {}
    if kind.group:
        details["group"] = kind.group
    details["kind"] = kind.plural
    return details
