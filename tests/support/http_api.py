"""An API server as a test speaks to it: plain requests, whole answers, nothing translated."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import urllib3

APPLY = "application/apply-patch+yaml"
JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


@dataclass
class Answer:
    """One answer; `body` is parsed where it is JSON."""

    status: int
    body: Any

    @property
    def meta(self) -> dict[str, Any]:
        return self.body["metadata"]

    @property
    def version(self) -> str:
        return self.meta["resourceVersion"]

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.body["items"]]


@dataclass
class HttpApi:
    """Requests to one server; `real` tells the tests which of the two they talk to.

    `age` makes changes too old to be watched; on a real server the first ones are, since it was started after them.
    """

    url: str
    real: bool = False
    agent: str = "contract/1"
    token: str = ""
    age: Callable[[], None] = lambda: None
    pool: urllib3.PoolManager = field(default_factory=urllib3.PoolManager)

    def close(self) -> None:
        self.pool.clear()

    def request(self, method: str, path: str, body: Any = None, content_type: str = JSON, **query: Any) -> Answer:
        """One request; query names as the API writes them, `continue_` for `continue`."""
        headers = {"Content-Type": content_type, "User-Agent": self.agent, "Accept": JSON}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        url = self.url + path + _query(query)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        answer = self.pool.request(method, url, body=data, headers=headers, retries=False, timeout=20)
        is_json = answer.headers.get("Content-Type", "").startswith(JSON)
        return Answer(answer.status, json.loads(answer.data) if is_json else answer.data.decode())

    def get(self, path: str, **query: Any) -> Answer:
        return self.request("GET", path, **query)

    def post(self, path: str, body: Any, **query: Any) -> Answer:
        return self.request("POST", path, body, **query)

    def put(self, path: str, body: Any, **query: Any) -> Answer:
        return self.request("PUT", path, body, **query)

    def delete(self, path: str, body: Any = None, **query: Any) -> Answer:
        return self.request("DELETE", path, body, **query)

    def patch(self, path: str, body: Any, content_type: str = MERGE, **query: Any) -> Answer:
        return self.request("PATCH", path, body, content_type, **query)

    def apply(self, path: str, body: Any, manager: str, **query: Any) -> Answer:
        return self.request("PATCH", path, body, APPLY, fieldManager=manager, **query)

    def watch(self, path: str, seconds: int = 10, **query: Any) -> Iterator[dict[str, Any]]:
        """The events of one watch, until it ends after `seconds`."""
        url = self.url + path + _query({"watch": "true", "timeoutSeconds": seconds, **query})
        headers = {"User-Agent": self.agent}
        answer = self.pool.request("GET", url, headers=headers, retries=False, preload_content=False, timeout=20)
        try:
            if answer.status != 200:
                raise AssertionError(f"{answer.status}: {answer.read()!r}")
            rest = b""
            for piece in answer.stream():
                *lines, rest = (rest + piece).split(b"\n")
                yield from map(json.loads, lines)
        finally:
            answer.close()


def _query(query: dict[str, Any]) -> str:
    texts = {k.rstrip("_"): str(v).lower() if isinstance(v, bool) else str(v) for k, v in query.items()}
    return "?" + urlencode(texts) if texts else ""


def await_served(api: HttpApi, path: str, seconds: float = 10) -> None:
    """Return once a resource that was just defined is served: a real server takes a moment."""
    ends = time.monotonic() + seconds
    while api.get(path).status != 200:
        assert time.monotonic() < ends, f"{path} is not served"
        threading.Event().wait(0.05)
