"""Who is asking, and whether they may."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cli.sandbox.apiserver.kinds import Kind
from cli.sandbox.apiserver.statuses import ApiError, forbidden

Authorize = Callable[[str, str, str], str | None]
"""User, verb, path → why not, or None. Verbs are the API's: get list watch create update patch delete deletecollection."""

ANONYMOUS = "system:anonymous"
ADMIN = "kubernetes-admin"


@dataclass(slots=True)
class Access:
    """Bearer tokens and the rule for what their users may do. Without tokens everybody is the administrator."""

    tokens: dict[str, str]
    authorize: Authorize | None = None

    def user(self, header: str) -> str:
        """The user behind an Authorization header; ApiError 401 for a token that is not known."""
        scheme, _, token = header.partition(" ")
        if scheme.lower() == "bearer" and token.strip() in self.tokens:
            return self.tokens[token.strip()]
        if not self.tokens:
            return ADMIN
        if header:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        return ANONYMOUS

    def check(self, user: str, verb: str, path: str, kind: Kind | None, name: str) -> None:
        """ApiError 403 with the rule's words."""
        if self.authorize is not None and (why := self.authorize(user, verb, path)) is not None:
            raise forbidden(kind, name, why)


def verb_of(method: str, query: Mapping[str, str], name: str) -> str:
    """The API's verb for a request on a resource."""
    match method:
        case "GET" if name:
            return "get"
        case "GET":
            return "watch" if query.get("watch", "").lower() in ("true", "1") else "list"
        case "POST":
            return "create"
        case "PUT":
            return "update"
        case "PATCH":
            return "patch"
        case _:
            return "delete" if name else "deletecollection"
