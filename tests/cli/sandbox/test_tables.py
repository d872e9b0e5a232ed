"""Objects as kubectl prints them, and what it asks before it sends some."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import urllib3
import yaml

from cli.sandbox.apiserver import ApiServer
from cli.sandbox.apiserver.tables import at
from cli.shipped import shipped
from tests.support.http_api import HttpApi

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer(now=lambda: NOW) as server:
        client = HttpApi(server.url)
        definition = yaml.safe_load(shipped("deploy/crds/nodeinventories.yaml").read_text())
        client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        client.close()
        yield server


def asked(api: ApiServer, path: str) -> list[list[object]]:
    """Headings and rows; columns for -o wide in brackets."""
    with urllib3.PoolManager() as pool:
        body = pool.request("GET", api.url + path, headers={"Accept": TABLE}).json()
    assert (body["kind"], body["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    heads = [f"({c['name']})" if c["priority"] else c["name"] for c in body["columnDefinitions"]]
    return [heads, *(row["cells"] for row in body["rows"])]


def test_pods_have_kubectls_columns(api: ApiServer) -> None:
    """A running one, and one that is being deleted."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "creationTimestamp": "2026-12-01T11:58:30Z"},
        "spec": {"nodeName": "node-a", "containers": [{"name": "main"}, {"name": "other"}]},
        "status": {"phase": "Running", "containerStatuses": [{"ready": True, "restartCount": 2}]},
    }
    api.store.put(pod)
    api.store.put({**pod, "metadata": {"name": "b", "deletionTimestamp": "2026-12-01T12:00:00Z"}})
    assert asked(api, "/api/v1/namespaces/default/pods") == [
        ["Name", "Ready", "Status", "Restarts", "Age", "(IP)", "(Node)"],
        ["a", "1/2", "Running", 2, "90s", "<none>", "node-a"],
        ["b", "1/2", "Terminating", 2, "0s", "<none>", "node-a"],
    ]


def test_claims_tell_their_state(api: ApiServer) -> None:
    """One object is a table of one row."""
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "creationTimestamp": "2026-11-28T12:00:00Z"},
        "status": {"allocation": {"devices": {}}, "reservedFor": [{"name": "a"}]},
    }
    api.store.put(claim)
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c"
    assert asked(api, path)[1:] == [["c", "allocated,reserved", "3d"]]
    api.store.put({**claim, "status": {}})
    assert asked(api, path)[1:] == [["c", "pending", "3d"]]


def test_custom_resources_have_the_columns_of_their_definition(api: ApiServer) -> None:
    """Those of the NodeInventory, from the very file of deploy/."""
    conditions = [{"type": "Registered", "status": "True"}, {"type": "Published", "reason": "Published"}]
    api.store.put(
        {
            "apiVersion": "lanewise.dev/v1alpha1",
            "kind": "NodeInventory",
            "metadata": {"name": "node-a", "creationTimestamp": "2026-12-01T11:00:00Z"},
            "spec": {"summary": {"gpus": 8}, "gpus": [], "nics": []},
            "status": {"published": {"devices": 7}, "conditions": conditions},
        }
    )
    heads, row = asked(api, "/apis/lanewise.dev/v1alpha1/nodeinventories")
    told = dict(zip(heads, row, strict=True))
    assert (told["Name"], told["GPUs"], told["Published"], told["Registered"]) == ("node-a", 8, 7, "True")
    assert (told["Reason"], told["Age"], told["Product"], told["(Message)"]) == ("Published", "60m", None, None)


def test_watches_tell_tables_too(api: ApiServer) -> None:
    """As `kubectl get -w` asks; bookmarks stay what they are."""
    client = HttpApi(api.url)
    client.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})
    url = f"{api.url}/api/v1/namespaces?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Dx"
    text = client.pool.request("GET", url, headers={"Accept": TABLE}).data.decode()
    client.close()
    assert '"kind":"Table"' in text
    assert '"cells":["x","Active","0s"]' in text


def test_what_is_there_comes_before_a_bookmark_that_says_so(api: ApiServer) -> None:
    """`sendInitialEvents`, which kubectl uses to wait (KEP-3157)."""
    client = HttpApi(api.url)
    events = client.watch("/api/v1/namespaces", seconds=1, sendInitialEvents=True, allowWatchBookmarks=True)
    told = [(event["type"], event["object"]["metadata"].get("name")) for event in events]
    client.close()
    assert told[:5] == [
        ("ADDED", "default"),
        ("ADDED", "kube-node-lease"),
        ("ADDED", "kube-public"),
        ("ADDED", "kube-system"),
        ("BOOKMARK", None),
    ]


def test_openapi_says_that_the_server_checks_fields(api: ApiServer) -> None:
    """All that kubectl apply needs to know of it."""
    client = HttpApi(api.url)
    paths = client.get("/openapi/v3").body["paths"]
    document = client.get(paths["apis/resource.k8s.io/v1"]["serverRelativeURL"]).body
    patch = document["paths"]["/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"]["patch"]
    assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]
    assert patch["x-kubernetes-group-version-kind"]["kind"] == "ResourceClaim"
    assert client.get("/openapi/v3/apis/nowhere/v1").status == 404
    client.close()


def test_paths_of_columns_lead_to_what_they_name() -> None:
    """And to nothing where there is nothing."""
    value = {"a": [{"t": "x", "v": 1}, {"t": "y", "v": 2}]}
    assert list(at(value, '.a[?(@.t=="y")].v')) == [2]
    assert list(at(value, ".a[0].v")) == [1]
    assert list(at(value, ".a[9].v")) == list(at(value, ".b.c")) == []
    with pytest.raises(ValueError, match="no path that is understood"):
        list(at(value, "..a"))
