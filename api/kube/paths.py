"""Where the API server keeps the kinds Lanewise reads or writes."""

from dataclasses import dataclass
from urllib.parse import quote

from api.names import API_GROUP


def resource(
    group: str,
    version: str,
    plural: str,
    namespace: str | None = None,
    name: str | None = None,
    subresource: str | None = None,
) -> str:
    """The URL path of a collection, of one object in it, or of that object's subresource; `group` is "" for core.

    Without `namespace` a namespaced kind is meant in all namespaces. An empty `name` raises ValueError: whoever has one means
    an object, and would delete the collection. Source: Kubernetes API concepts, "Resource URIs".
    """
    if name == "":
        raise ValueError(f"no name for one of {plural}")
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    parts = [*(("namespaces", namespace) if namespace else ()), plural, *(part for part in (name, subresource) if part)]
    return "/".join([root, *(quote(part, safe="") for part in parts)])


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind as the API server serves it."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        """What stands in `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """As `resource`, for this kind."""
        return resource(self.group, self.version, self.plural, namespace, name, subresource)


SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice")
CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
NODES = Resource("", "v1", "nodes", "Node")
PODS = Resource("", "v1", "pods", "Pod")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
NODE_INVENTORIES = Resource(API_GROUP, "v1alpha1", "nodeinventories", "NodeInventory")
