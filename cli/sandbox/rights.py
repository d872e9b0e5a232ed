"""What our programs may do in the sandbox: what the roles of deploy/ grant them, and nothing else.

Only service accounts that a binding names are held to it. The stand-ins for Kubernetes' own parts may do everything.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cli.sandbox.apiserver.access import ANONYMOUS, Authorize


@dataclass(frozen=True, slots=True)
class Grant:
    """One rule as it holds for one user."""

    groups: frozenset[str]
    resources: frozenset[str]
    verbs: frozenset[str]
    namespace: str | None
    """None: in every namespace, and for what has none."""

    def covers(self, group: str, resource: str, verb: str, namespace: str) -> bool:
        """Whether it allows this."""
        return (
            self.namespace in (None, namespace)
            and not self.groups.isdisjoint((group, "*"))
            and not self.resources.isdisjoint((resource, "*"))
            and not self.verbs.isdisjoint((verb, "*"))
        )


def granted(objects: Iterable[Mapping[str, Any]]) -> Mapping[str, tuple[Grant, ...]]:
    """The grants of each user, from roles and bindings. ValueError for rules of a kind that is not understood here."""
    known = list(objects)
    roles = {(obj["kind"], obj["metadata"]["name"]): obj for obj in known if obj["kind"] in ("Role", "ClusterRole")}
    found: dict[str, list[Grant]] = {}
    for binding in known:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        namespace = binding["metadata"]["namespace"] if binding["kind"] == "RoleBinding" else None
        role = roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]
        grants = [_grant(rule, namespace) for rule in role.get("rules") or ()]
        for subject in binding["subjects"]:
            if subject["kind"] != "ServiceAccount":
                raise ValueError(f"{binding['metadata']['name']} binds a {subject['kind']}, not a service account")
            found.setdefault(account(subject["namespace"], subject["name"]), []).extend(grants)
    return {user: tuple(grants) for user, grants in found.items()}


def account(namespace: str, name: str) -> str:
    """The user name of a service account."""
    return f"system:serviceaccount:{namespace}:{name}"


def authorize_by(objects: Iterable[Mapping[str, Any]], *, strangers: bool = False) -> Authorize:
    """The rule for `ApiServer`. Service accounts without any binding have no rights. With `strangers` whoever brings no token
    is an administrator: kubectl sends none where there is no TLS (client-go, clientcmd: only for `IsConfigTransportTLS`).
    """
    grants = granted(objects)

    def authorize(user: str, verb: str, path: str) -> str | None:
        if user == ANONYMOUS:
            return None if strangers else "no token was given"
        if not user.startswith(account("", "").rstrip(":")):
            return None
        asked = _asked(path)
        if asked is None:
            return None  # discovery, which Kubernetes lets everybody read
        group, resource, namespace = asked
        if any(grant.covers(group, resource, verb, namespace) for grant in grants.get(user, ())):
            return None
        return "no role grants it"

    return authorize


def _grant(rule: Mapping[str, Any], namespace: str | None) -> Grant:
    if strange := rule.keys() - {"apiGroups", "resources", "verbs"}:
        raise ValueError(f"a rule with {', '.join(sorted(strange))} is not understood")
    return Grant(frozenset(rule["apiGroups"]), frozenset(rule["resources"]), frozenset(rule["verbs"]), namespace)


def _asked(path: str) -> tuple[str, str, str] | None:
    """Group, resource with its subresource, and namespace of a URL path; None where it is of no resource."""
    match path.strip("/").split("/"):
        case ["api", _, *rest]:
            group = ""
        case ["apis", group, _, *rest]:
            pass
        case _:
            return None
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    return (group, "/".join((rest[0], *rest[2:3])), namespace) if rest else None
