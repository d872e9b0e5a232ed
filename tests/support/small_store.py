"""Enough of an API server to keep single objects: versions, conflicts, merge patches."""

import threading
from typing import Any

from tests.support.scripted_server import Asked, Json, refusal


class SmallStore:
    """An `answer` for the scripted server."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.lock = threading.Lock()
        self.version = 0

    def __call__(self, asked: Asked) -> Any:
        with self.lock:
            if asked.method == "POST":
                path = f"{asked.path}/{asked.body['metadata']['name']}"
                return refusal(409, "AlreadyExists") if path in self.objects else self.write(path, asked.body, 201)
            known = self.objects.get(asked.path)
            if known is None:
                return refusal(404, "NotFound")
            if asked.method == "PUT":
                version = asked.body["metadata"].get("resourceVersion")
                stale = version not in (None, known["metadata"]["resourceVersion"])
                return refusal(409, "Conflict") if stale else self.write(asked.path, asked.body)
            if asked.method == "PATCH":
                assert asked.headers["content-type"] == "application/merge-patch+json"
                return self.write(asked.path, merged(known, asked.body))
            if asked.method == "DELETE":
                return Json(self.objects.pop(asked.path))
            return Json(known)

    def write(self, path: str, item: dict[str, Any], status: int = 200) -> Json:
        self.version += 1
        self.objects[path] = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.version)}}
        return Json(self.objects[path], status=status)


def merged(old: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
