"""Whether the body of a write belongs at its path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cli.sandbox.apiserver.kinds import Kind
from cli.sandbox.apiserver.statuses import ApiError, bad_request
from cli.sandbox.apiserver.store import Key


def check_name(meta: Mapping[str, Any], key: Key) -> None:
    """ApiError 400 unless the object has the name of its path."""
    name = meta.get("name") or ""
    if name != key.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({key.name})")


def check_header(kind: Kind, namespace: str, body: Mapping[str, Any], *, strict: bool = False) -> None:
    """ApiError 400 unless version, kind and namespace are those of the path; `strict` wants the first two there."""
    version, name = body.get("apiVersion") or "", body.get("kind") or ""
    if strict and not (version and name):
        raise bad_request(f"invalid object type: /{version}, Kind={name}")
    if version not in ("", kind.api_version):
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({kind.api_version})"
        )
    if name not in ("", kind.kind):
        raise bad_request(f'{name} in version "{kind.version}" cannot be handled as a {kind.kind}')
    meta = body.get("metadata") or {}
    if not isinstance(meta, Mapping):
        raise bad_request("metadata is no object")
    if meta.get("namespace", "") not in ("", namespace):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def unsupported_patch(*, known: bool) -> ApiError:
    """415: a patch of no sort at all, or of one (`known`) that custom resources do not take."""
    if not known:
        return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    accepted = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return ApiError(415, "UnsupportedMediaType", message)


def without_nulls(value: Any) -> Any:
    """The value without null fields: typed kinds read null as absent."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def unknown_fields(kind: Kind, unknown: list[str]) -> ApiError:
    """400 for fields a strict request should not have had."""
    decoded = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'
    return bad_request(f"{decoded}: {strict_complaint(unknown)}")


def strict_complaint(unknown: list[str]) -> str:
    """The words for fields that are not there."""
    return "strict decoding error: " + ", ".join(f'unknown field "{path}"' for path in unknown)


def untypable(kind: Kind, key: Key, why: str) -> ApiError:
    """500 for an applied configuration that does not fit the kind's schema: so the real server answers, too."""
    return ApiError(500, "", f"failed to create typed patch object (/{key.name}; {kind.group_version_kind}): {why}")
