"""What can go wrong between us and the API server, translated once.

Callers catch these and nothing of urllib3. Each has `what` and `remedy` like the reasons of `api.refusals`.
"""

# ruff: noqa: N818  # the names are what went wrong, as Kubernetes calls it

import json
import re
import ssl
from collections.abc import Mapping
from typing import Any, Literal

from urllib3 import exceptions as http

SHOWN_BODY_BYTES = 200
"""How much of an answer that is no Status object is quoted: enough for a proxy's error title."""


Cause = Literal["unreached", "untrusted", "silent", "dropped"]
"""untrusted: TLS was not agreed on. silent, dropped: after the request was sent, so it may have been carried out."""


class KubeError(Exception):
    """The API server did not do what we asked; one of the classes below."""

    remedy = "this is tried again by itself"

    @property
    def what(self) -> str:
        """One line that stands alone."""
        return str(self)


class Closed(KubeError):
    """We hung up ourselves: the client was closed."""

    remedy = "nothing need be done"


class Unreachable(KubeError):
    """No answer came: refused, not resolved, not trusted, timed out, dropped."""

    def __init__(
        self, server: str, problem: str, remedy: str = KubeError.remedy, *, cause: Cause = "unreached"
    ) -> None:
        super().__init__(f"{server}: {problem}")
        self.remedy = remedy
        self.cause = cause


class Garbled(KubeError):
    """An answer came that is not Kubernetes' JSON."""

    remedy = "look whether something else than a Kubernetes API server answers at this address"

    def __init__(self, call: str, problem: str) -> None:
        super().__init__(f"{call}: {problem}")


class ApiError(KubeError):
    """The API server said no, with a Status object."""

    def __init__(
        self,
        call: str,
        *,
        status: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(f"{call}: {status} {reason}: {message}" if message else f"{call}: {status} {reason}")
        self.call = call
        """Verb and path."""
        self.status = status
        self.reason = reason
        """Kubernetes' reason in CamelCase, made from the status where the answer has none."""
        self.message = message
        self.details: Mapping[str, Any] = details or {}
        self.retry_after_seconds = retry_after_seconds


class Unauthorized(ApiError):
    """401: who we are is not known."""

    remedy = "check that the token or client certificate is of this cluster and has not expired"


class Forbidden(ApiError):
    """403: known, but not allowed."""

    remedy = "grant the right named here (the chart's ClusterRoles hold all that Lanewise needs)"


class NotFound(ApiError):
    """404: no such object."""


class NotServed(ApiError):
    """404 for a whole kind: the API server does not have it in this version (Case I9). No object is missing because of it."""

    def __init__(self, call: str, *, group_version: str) -> None:
        message = f"the API server does not serve {group_version}"
        super().__init__(call, status=404, reason="NotFound", message=message)
        self.remedy = _HOW_TO_SERVE.get(group_version, "see what it serves: kubectl api-versions")


_HOW_TO_SERVE: Mapping[str, str] = {
    "resource.k8s.io/v1": "Lanewise needs Kubernetes 1.34 or newer with this API on; see: kubectl api-versions",
    "lanewise.dev/v1alpha1": "install the CRDs of this version: kubectl apply -k deploy",
}


class AlreadyExists(ApiError):
    """409 on create."""


class Conflict(ApiError):
    """409 on update or on a failed precondition: somebody else wrote first."""


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old to go on from."""


class Invalid(ApiError):
    """422: the object breaks a rule of its kind or of an admission policy."""

    remedy = "correct the field named here"


class TooManyRequests(ApiError):
    """429: come back later, nothing was done."""


class Unavailable(ApiError):
    """503: come back later."""


_BY_STATUS: Mapping[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
    503: Unavailable,
}
_REASONS: Mapping[int, str] = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Gone",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def from_status(call: str, status: Mapping[str, Any], *, code: int = 0, retry_after: str | None = None) -> ApiError:
    """The error for a Status object, as it comes in an answer's body or in a watch's ERROR event."""
    stated = status.get("code")
    code = code or (stated if isinstance(stated, int) else 500)
    reason = str(status.get("reason") or _REASONS.get(code, "Unknown"))
    details = status.get("details")
    details = details if isinstance(details, dict) else {}
    kind = _BY_STATUS.get(code, ApiError)
    if reason in ("Expired", "Gone"):
        kind = Gone
    elif reason == "AlreadyExists":
        kind = AlreadyExists
    return kind(
        call,
        status=code,
        reason=reason,
        message=str(status.get("message") or ""),
        details=details,
        retry_after_seconds=_seconds(retry_after) or _seconds(details.get("retryAfterSeconds")),
    )


def from_answer(call: str, code: int, body: bytes, retry_after: str | None) -> ApiError:
    """The error for an answer whose status is not 2xx, whatever its body holds."""
    try:
        status = json.loads(body)
    except (ValueError, RecursionError):
        status = None
    if code == 404 and (group_version := _not_served(call, status)):
        return NotServed(call, group_version=group_version)
    if not isinstance(status, dict):
        status = {"message": " ".join(body[:SHOWN_BODY_BYTES].decode(errors="replace").split())}
    return from_status(call, status, code=code, retry_after=retry_after)


def _not_served(call: str, status: Any) -> str | None:
    """The group and version that a 404 says is not there: plain text for an unknown group or version, a Status about nothing
    for an unknown kind of a known one (asked of kube-apiserver 1.37)."""
    if isinstance(status, dict) and status.get("message") != "the server could not find the requested resource":
        return None
    match = re.search(r" /(?:apis/([^/]+/[^/]+)|api/([^/]+))/", call)
    return (match[1] or match[2]) if match else None


def stale_version(error: KubeError) -> bool:
    """Whether a watch from the same resourceVersion would fail again, so that only a new list helps.

    Beside 410 that is a version the server cannot read (400), and one that it has not reached, as after etcd was restored
    from a backup (cause ResourceVersionTooLarge, apimachinery pkg/api/errors).
    """
    if not isinstance(error, ApiError):
        return False
    causes = error.details.get("causes")
    too_large = isinstance(causes, list) and any(
        isinstance(cause, dict) and cause.get("reason") == "ResourceVersionTooLarge" for cause in causes
    )
    return isinstance(error, Gone | Invalid) or error.status == 400 or too_large


def from_transport(server: str, error: http.HTTPError) -> Unreachable:
    """The plain words for what urllib3 raised."""
    match error:
        case http.NameResolutionError():
            return Unreachable(
                server, "the name cannot be resolved", "check the server's address and this machine's DNS"
            )
        case http.SSLError():
            return Unreachable(server, _tls_problem(error), "check the certificate authority given", cause="untrusted")
        case http.NewConnectionError():
            return Unreachable(server, _last_words(error).lower())
        case http.ConnectTimeoutError():
            return Unreachable(server, "nobody took the connection in time")
        case http.ReadTimeoutError():
            return Unreachable(server, "no answer in time", cause="silent")
        case _:
            return Unreachable(server, "the connection was dropped", cause="dropped")


def _tls_problem(error: http.SSLError) -> str:
    cause = error.args[0] if error.args else None
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"the server's certificate is not trusted: {cause.verify_message}"
    return f"TLS: {_last_words(error)}"


def _last_words(error: Exception) -> str:
    return re.sub(r"^\[Errno [^]]*\] ", "", str(error).rsplit(": ", 1)[-1]) or type(error).__name__


def _seconds(value: object) -> float | None:
    # A date is allowed here by HTTP, but the API server sends seconds.
    text = str(value) if value is not None else ""
    return float(text) if text.isascii() and text.isdigit() and text != "0" else None
