"""Gets and lists: selection, pages that stay consistent, and versions that clients ask for."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from cli.sandbox.apiserver import selectors
from cli.sandbox.apiserver.kinds import Kind
from cli.sandbox.apiserver.routes import Route, Target, count
from cli.sandbox.apiserver.selectors import Test
from cli.sandbox.apiserver.statuses import ApiError, bad_request, expired, not_found
from cli.sandbox.apiserver.store import CompactedError, Key, Obj, Store

_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


def selection(route: Route, target: Target) -> Test:
    """The test that a stored object of this collection must pass."""
    by_label = selectors.labels(target.query.get("labelSelector", ""))
    by_field = selectors.fields(route.kind, target.query.get("fieldSelector", ""))
    return lambda obj: by_field(obj) and by_label(obj["metadata"].get("labels") or {})


def get(store: Store, route: Route) -> Obj:
    """One object; ApiError 404 when it is not there."""
    found = store.find(route.key)
    if found is None:
        raise not_found(route.kind, route.name)
    return route.kind.shown(found)


def listed(store: Store, route: Route, target: Target) -> Obj:
    """One page of a collection, with what is needed to ask for the next."""
    chosen = selection(route, target)
    limit = count(target, "limit")
    token = target.query.get("continue", "")
    with store.lock:
        version, start = _position(store, target, token)
        try:
            objects = store.at(route.kind.storage, version) if version != store.version else None
        except CompactedError:
            raise _page_expired(store, token, start) from None
        pairs = store.under(route.kind.storage, route.namespace) if objects is None else sorted(objects.items())
    pairs = [
        (key, obj)
        for key, obj in pairs
        if route.namespace in ("", key.namespace) and [key.namespace, key.name] > start and chosen(obj)
    ]
    meta: Obj = {"resourceVersion": str(version)} | ({"continue": ""} if route.kind.custom else {})
    if limit and len(pairs) > limit:
        meta["continue"] = _token(version, pairs[limit - 1][0])
        if not target.query.get("labelSelector") and not target.query.get("fieldSelector"):
            meta["remainingItemCount"] = len(pairs) - limit
        pairs = pairs[:limit]
    return {
        "kind": f"{route.kind.kind}List",
        "apiVersion": route.kind.api_version,
        "metadata": meta,
        "items": [_item(route.kind, obj) for _, obj in pairs],
    }


def _item(kind: Kind, obj: Mapping[str, Any]) -> Obj:
    """Items of built-in kinds come without kind and apiVersion, as from the real server."""
    shown = kind.shown(obj)
    return shown if kind.custom else {k: v for k, v in shown.items() if k not in ("kind", "apiVersion")}


def _position(store: Store, target: Target, token: str) -> tuple[int, list[str]]:
    """At which version to list, and after which object."""
    asked = target.query.get("resourceVersion") or ""
    if token:
        if asked not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        try:
            place = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
            version, start = int(place["rv"]), [str(s) for s in place["start"]]
        except (ValueError, KeyError, TypeError):
            raise bad_request("invalid continue token: continue key is not valid") from None
        return (version if version > 0 else store.version), start
    if asked and not asked.isdigit():
        raise bad_request(f"invalid resource version: {not_a_version(asked)}")
    version = int(asked or 0)
    if version > store.version:
        message = f"Timeout: Too large resource version: {version}, current: {store.version}"
        causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
        raise ApiError(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1})
    if target.query.get("resourceVersionMatch") == "Exact" and version:
        return version, []
    return store.version, []


def not_a_version(text: str) -> str:
    """The complaint about a version that is no number."""
    return f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'


def _token(version: int, after: Key) -> str:
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": [after.namespace, after.name]})
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _page_expired(store: Store, token: str, start: list[str]) -> ApiError:
    if not token:
        return expired(f"The resourceVersion for the provided list is too old. Oldest is {store.oldest}.")
    after = Key("", start[0], start[1])
    return expired(_TOO_OLD, **{"continue": _token(-1, after)})
