"""What goes with a deleted object, and what waits."""

from tests.support.api_objects import CONFIG_MAPS, NODES, SLICES, a_config_map, a_slice

PODS = "/api/v1/namespaces/default/pods"


def _node(name):
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def _owned_by(uid, **more):
    return {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": uid}], **more}


def test_slices_go_with_their_node(server, api):
    """A cluster-scoped owner takes its objects with it before the delete is answered."""
    uid = api.post(NODES, _node("n")).meta["uid"]
    body = a_slice("a")
    body["metadata"] |= _owned_by(uid)
    api.post(SLICES, body)
    api.post(SLICES, a_slice("b"))
    api.delete(f"{NODES}/n")
    assert [s["metadata"]["name"] for s in server.store.listed("resourceslices")] == ["b"]


def test_object_with_another_living_owner_stays(server, api):
    """Only the reference to the dead owner goes."""
    first, second = (api.post(NODES, _node(n)).meta["uid"] for n in ("n", "m"))
    references = [{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": uid} for uid in (first, second)]
    api.post(CONFIG_MAPS, a_config_map("a", ownerReferences=references))
    api.delete(f"{NODES}/n")
    assert [o["uid"] for o in server.store.get("configmaps", "a")["metadata"]["ownerReferences"]] == [second]


def test_orphaning_lets_them_live(server, api):
    """propagationPolicy Orphan cuts the tie."""
    uid = api.post(NODES, _node("n")).meta["uid"]
    api.post(CONFIG_MAPS, a_config_map("a", **_owned_by(uid)))
    api.delete(f"{NODES}/n", propagationPolicy="Orphan")
    assert "ownerReferences" not in server.store.get("configmaps", "a")["metadata"]


def test_owned_object_with_a_finalizer_is_marked(server, api):
    """Collection is deletion: finalizers are waited for."""
    uid = api.post(NODES, _node("n")).meta["uid"]
    api.post(CONFIG_MAPS, a_config_map("a", **_owned_by(uid, finalizers=["example.com/wait"])))
    api.delete(f"{NODES}/n")
    assert server.store.get("configmaps", "a")["metadata"]["deletionTimestamp"]


def test_objects_of_owners_that_never_were_are_collected_on_request(server, api):
    """The real collector finds them by itself; here a test says when."""
    api.post(CONFIG_MAPS, a_config_map("a", **_owned_by("11111111-1111-1111-1111-111111111111")))
    assert api.get(f"{CONFIG_MAPS}/a").status == 200
    assert [key.name for key in server.deletion.collect()] == ["a"]
    assert api.get(f"{CONFIG_MAPS}/a").status == 404


def test_namespace_goes_with_all_it_holds(server, api):
    """A namespace is terminating until its last object is gone, and takes no new ones meanwhile."""
    api.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    maps = "/api/v1/namespaces/team/configmaps"
    api.post(maps, a_config_map("a"))
    api.post(maps, a_config_map("b", finalizers=["example.com/wait"]))
    api.delete("/api/v1/namespaces/team")
    assert server.store.get("namespaces", "team")["status"]["phase"] == "Terminating"
    assert api.get(maps).names == ["b"]
    assert api.post(maps, a_config_map("c")).status == 403
    api.patch(f"{maps}/b", {"metadata": {"finalizers": None}})
    assert server.store.get("namespaces", "team") is None


def test_pod_on_a_node_is_given_its_grace(server, api):
    """A running pod is marked with its deadline, and goes when the kubelet deletes it with no grace."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": []}}
    api.post(PODS, pod)
    marked = api.delete(f"{PODS}/p")
    assert (marked.meta["deletionGracePeriodSeconds"], marked.body["kind"]) == (30, "Pod")
    api.patch(f"{PODS}/p/status", {"status": {"phase": "Running"}})
    assert api.get(f"{PODS}/p").status == 200
    api.delete(f"{PODS}/p", gracePeriodSeconds=0)
    assert api.get(f"{PODS}/p").status == 404


def test_pod_without_a_node_goes_at_once(server, api):
    """Nobody has to stop it."""
    api.post(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}})
    api.delete(f"{PODS}/p")
    assert api.get(f"{PODS}/p").status == 404
