"""URL paths of the API."""

import pytest

from api.kube.paths import CLAIMS, LEASES, NODE_INVENTORIES, NODES, SLICES, resource


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (NODES.path(), "/api/v1/nodes"),
        (NODES.path(name="node-a", subresource="status"), "/api/v1/nodes/node-a/status"),
        (SLICES.path(name="s"), "/apis/resource.k8s.io/v1/resourceslices/s"),
        (CLAIMS.path(), "/apis/resource.k8s.io/v1/resourceclaims"),
        (CLAIMS.path("team-a"), "/apis/resource.k8s.io/v1/namespaces/team-a/resourceclaims"),
        (CLAIMS.path("team-a", "c", "status"), "/apis/resource.k8s.io/v1/namespaces/team-a/resourceclaims/c/status"),
        (LEASES.path("ns", "l"), "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l"),
        (NODE_INVENTORIES.path(name="node-a"), "/apis/lanewise.dev/v1alpha1/nodeinventories/node-a"),
        (resource("", "v1", "pods", "a/../b"), "/api/v1/namespaces/a%2F..%2Fb/pods"),
    ],
)
def test_paths_are_those_of_the_api(path, wanted):
    """With and without group, namespace, name and subresource; names cannot leave their place."""
    assert path == wanted


def test_kinds_know_their_api_version():
    """What is written into new objects fits the path they are sent to."""
    assert (NODES.api_version, SLICES.api_version) == ("v1", "resource.k8s.io/v1")


def test_an_empty_name_is_no_collection():
    """DELETE on a collection deletes all of it."""
    with pytest.raises(ValueError, match="no name for one of leases"):
        LEASES.path("lanewise-system", "")
