"""Which rights the two programs need: those of deploy/manifests/rbac.yaml, and the one that nodes must not have."""

from collections.abc import Iterator
from dataclasses import dataclass

PLUGIN_ACCOUNT = "lanewise-node"
CONTROLLER_ACCOUNT = "lanewise-controller"


@dataclass(frozen=True, slots=True)
class Right:
    """One thing that one service account may do."""

    account: str
    verb: str
    group: str
    resource: str
    """With its subresource: `nodeinventories/status`."""
    everywhere: bool = True
    """False: in Lanewise's own namespace only."""

    @property
    def text(self) -> str:
        """As people say it."""
        name = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {name}"

    def review(self, namespace: str) -> dict[str, object]:
        """A SubjectAccessReview that asks whether it is granted (authorization.k8s.io/v1)."""
        resource, _, subresource = self.resource.partition("/")
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{namespace}:{self.account}",
                # The authorizer is not told them by the name, as it is when a token is shown.
                "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
                "resourceAttributes": {
                    "verb": self.verb,
                    "group": self.group,
                    "resource": resource,
                    **({"subresource": subresource} if subresource else {}),
                    **({} if self.everywhere else {"namespace": namespace}),
                },
            },
        }


_Rule = tuple[str, str, str, str, bool]
"""Account, group, resource, verbs, everywhere."""
_RULES: tuple[_Rule, ...] = (
    (PLUGIN_ACCOUNT, "", "nodes", "get", True),
    (PLUGIN_ACCOUNT, "lanewise.dev", "nodeinventories", "create patch", True),
    (PLUGIN_ACCOUNT, "lanewise.dev", "nodeinventories/status", "patch", True),
    (PLUGIN_ACCOUNT, "resource.k8s.io", "resourceclaims", "get", True),
    (PLUGIN_ACCOUNT, "events.k8s.io", "events", "create patch", True),
    (PLUGIN_ACCOUNT, "coordination.k8s.io", "leases", "create patch delete", False),
    (CONTROLLER_ACCOUNT, "lanewise.dev", "nodeinventories", "list watch", True),
    (CONTROLLER_ACCOUNT, "lanewise.dev", "nodeinventories/status", "patch", True),
    (CONTROLLER_ACCOUNT, "resource.k8s.io", "resourceslices", "get list watch create update delete", True),
    (CONTROLLER_ACCOUNT, "", "nodes", "list watch", True),
    (CONTROLLER_ACCOUNT, "coordination.k8s.io", "leases", "get list watch create update delete", False),
)


def _rights() -> Iterator[Right]:
    for account, group, resource, verbs, everywhere in _RULES:
        for verb in verbs.split():
            yield Right(account, verb, group, resource, everywhere)


NEEDED = tuple(_rights())
FORBIDDEN = tuple(
    Right(PLUGIN_ACCOUNT, verb, "resource.k8s.io", "resourceslices") for verb in ("create", "update", "patch")
)
"""A node that was broken into could otherwise invent devices elsewhere."""
