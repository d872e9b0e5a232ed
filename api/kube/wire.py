"""How calls are written and answers read: queries, bodies, and whether to ask again."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from urllib3 import BaseHTTPResponse

from api.kube.errors import Garbled, KubeError, TooManyRequests, Unavailable, Unreachable, from_answer
from api.kube.watch import Object

Query = Mapping[str, str | int | bool]

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

ERROR_BYTES = 65536
"""How much of an error's body is read from a stream."""
REPEATS = 3
"""How often a call that may be repeated is, when the server asks for patience."""
PATIENCE_SECONDS = 10.0
"""The longest wait of that kind; a server that wants more gets it from the caller's own backoff."""


def patience(error: KubeError) -> float | None:
    """How long to wait before repeating, None not to."""
    if isinstance(error, TooManyRequests | Unavailable):
        asked = error.retry_after_seconds
        return asked if asked is not None and asked <= PATIENCE_SECONDS else None
    # The server may close a kept connection in the moment we use it.
    return 0.0 if isinstance(error, Unreachable) and error.cause == "dropped" else None


def query_text(query: Query | None) -> str:
    """The query as it stands in a URL, with its question mark; truth values as Kubernetes reads them."""
    if not query:
        return ""
    plain = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in query.items()}
    return f"?{urlencode(plain)}"


def decoded(call: str, response: BaseHTTPResponse) -> Object:
    """The object in an answer. Raises the ApiError it is instead, or Garbled."""
    body = response.data
    if not 200 <= response.status < 300:
        raise from_answer(call, response.status, body, response.headers.get("Retry-After"))
    try:
        answer: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Garbled(call, "the answer is no JSON") from error
    if not isinstance(answer, dict):
        raise Garbled(call, "the answer is no object")
    return answer
