"""Claims from templates, and the end of reservations, on the in-process API server."""

import threading
import time

import pytest

from api.kube.client import Client
from api.kube.paths import CLAIMS, PODS
from api.kube.server import Server
from cli.sandbox.claimcontroller import TEMPLATES, ClaimController
from cli.sandbox.claimrules import FINALIZER, POD_CLAIM, claim_for

SPEC = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.lanewise.dev"}}]}}


@pytest.fixture
def client(server):
    with Client(Server(server.url), user_agent="test") as speaker:
        yield speaker


@pytest.fixture
def controller(client):
    started = ClaimController(client)
    started.start()
    yield started
    started.stop()


def until(look, seconds=10.0):
    """What `look` finds, once it finds something."""
    end, pause = time.monotonic() + seconds, threading.Event()
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        pause.wait(0.01)
    raise AssertionError("it did not come")


def a_pod(client, name="p", **spec):
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "none"}], **spec},
    }
    return client.create(PODS.path("default"), body)


def a_template(client, name="t"):
    body = {
        "apiVersion": TEMPLATES.api_version,
        "kind": TEMPLATES.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"metadata": {"labels": {"team": "a"}}, "spec": SPEC},
    }
    return client.create(TEMPLATES.path("default"), body)


def a_claim(client, users, *, name="c"):
    """An allocated claim, reserved for these (name, uid)s, as the scheduler leaves it."""
    body = {
        "apiVersion": CLAIMS.api_version,
        "kind": CLAIMS.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": SPEC,
    }
    return allocate(client, client.create(CLAIMS.path("default"), body), users)


def allocate(client, made, users):
    """As the scheduler leaves it: protected, allocated, reserved."""
    name, path = made["metadata"]["name"], CLAIMS.path("default", made["metadata"]["name"])
    made = client.replace(path, {**made, "metadata": {**made["metadata"], "finalizers": [FINALIZER]}})
    result = {"request": "gpu", "driver": "gpu.lanewise.dev", "pool": "n", "device": "gpu-0"}
    made["status"] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": pod, "uid": uid} for pod, uid in users],
    }
    return client.replace(CLAIMS.path("default", name, "status"), made)


def claims(client):
    return client.list_pages(CLAIMS.path("default")).items


def delete_now(client, pod):
    client.delete(PODS.path("default", pod["metadata"]["name"]), grace_seconds=0)


def test_pod_gets_a_claim_from_its_template(client, controller):
    """Named for pod and entry, owned by the pod, with the template's labels, and told in the pod's status."""
    a_template(client)
    pod = a_pod(client, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])
    (told,) = until(lambda: client.get(PODS.path("default", "p")).get("status", {}).get("resourceClaimStatuses"))
    (claim,) = claims(client)
    meta = claim["metadata"]
    assert told == {"name": "gpu", "resourceClaimName": meta["name"]}
    assert meta["name"].startswith("p-gpu-")
    assert meta["labels"] == {"team": "a"}
    assert meta["annotations"] == {POD_CLAIM: "gpu"}
    assert meta["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    assert claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu.lanewise.dev"


def test_template_that_comes_late_is_used_then(client, controller):
    """The pod waits for it."""
    a_pod(client, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])
    a_template(client)
    assert until(lambda: claims(client))


def test_claim_made_before_a_crash_is_found_again(client):
    """A controller that died between claim and pod status makes no second claim."""
    template = a_template(client)
    pod = a_pod(client, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])
    made = client.create(CLAIMS.path("default"), claim_for(pod, "gpu", template))
    controller = ClaimController(client)
    controller.start()
    try:
        told = until(lambda: client.get(PODS.path("default", "p")).get("status", {}).get("resourceClaimStatuses"))
    finally:
        controller.stop()
    assert told == [{"name": "gpu", "resourceClaimName": made["metadata"]["name"]}]
    assert len(claims(client)) == 1


def test_claim_that_the_watch_has_not_told_of_is_not_made_twice(client):
    """The pod's status could not be written, and the copy of the claims is old."""
    a_template(client)
    pod = a_pod(client, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])
    deaf = ClaimController(client)  # not started: it watches nothing
    try:
        assert deaf._make(pod, "gpu", "t") == deaf._make(pod, "gpu", "t")
    finally:
        deaf.stop()
    assert len(claims(client)) == 1


def test_claim_of_a_template_goes_with_its_pod(client, controller):
    """Also when it is allocated and protected by the finalizer."""
    a_template(client)
    pod = a_pod(client, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])
    (claim,) = until(lambda: claims(client))
    allocate(client, claim, [("p", pod["metadata"]["uid"])])
    delete_now(client, pod)
    until(lambda: not claims(client))


def test_last_user_gone_frees_the_claim(client, controller):
    """Allocation, reservation and finalizer go; the claim itself is its author's."""
    pod = a_pod(client)
    a_claim(client, [("p", pod["metadata"]["uid"])])
    delete_now(client, pod)
    freed = until(lambda: next((c for c in claims(client) if not c["metadata"].get("finalizers")), None))
    assert "allocation" not in (freed.get("status") or {})
    assert not (freed.get("status") or {}).get("reservedFor")


def test_one_of_two_users_gone_leaves_the_allocation(client, controller):
    """A claim is freed by its last user only."""
    first, second = a_pod(client, "a"), a_pod(client, "b")
    a_claim(client, [(pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in (first, second)])
    delete_now(client, first)
    left = until(lambda: next((c for c in claims(client) if len(c["status"].get("reservedFor") or ()) == 1), None))
    assert left["status"]["reservedFor"][0]["name"] == "b"
    assert left["status"]["allocation"]


def test_reservation_of_a_pod_of_the_same_name_but_another_uid_is_dropped(client, controller):
    """A pod made anew is another pod."""
    a_pod(client)
    a_claim(client, [("p", "8e0a0d7c-0000-4000-8000-000000000000")])
    assert until(lambda: not claims(client)[0]["status"].get("allocation"))


def test_deleted_claim_that_nobody_uses_is_let_go(client, controller):
    """Allocated without a user, then deleted: the finalizer is taken off."""
    a_claim(client, [])
    client.delete(CLAIMS.path("default", "c"))
    until(lambda: not claims(client))


def test_ended_pod_gives_back_its_claim_before_it_is_deleted(client, controller):
    """A pod that has run to its end keeps no device."""
    a_template(client)
    a_pod(client, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])
    until(lambda: claims(client))
    client.merge_patch(PODS.path("default", "p", "status"), {"status": {"phase": "Succeeded"}})
    until(lambda: not claims(client))


def test_long_names_are_cut_in_proportion():
    """Something of the pod's and of the entry's name is left, and room for the server's suffix."""
    pod = {"metadata": {"name": "p" * 100, "namespace": "default", "uid": "u"}}
    name = claim_for(pod, "e" * 50, {"spec": {"spec": SPEC}})["metadata"]["generateName"]
    assert len(name) <= 57
    assert set(name) == {"p", "e", "-"}


def test_missing_template_is_told_on_the_pod(server, client, controller):
    """In the controller's words."""
    a_pod(client, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])
    (event,) = until(lambda: server.store.listed("events.events.k8s.io"))
    assert (event["reason"], event["regarding"]["name"]) == ("FailedResourceClaimCreation", "p")
    missing = 'resourceclaimtemplates.resource.k8s.io "t" not found'
    assert event["note"] == f'PodResourceClaim gpu: resource claim template "t": {missing}'


def test_claim_that_somebody_deleted_is_made_again(client, controller):
    """The pod's status then names the new one."""
    a_template(client)
    a_pod(client, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])
    (first,) = until(lambda: claims(client))
    client.delete(CLAIMS.path("default", first["metadata"]["name"]))
    (second,) = until(lambda: [c for c in claims(client) if c["metadata"]["uid"] != first["metadata"]["uid"]])
    names = [{"name": "gpu", "resourceClaimName": second["metadata"]["name"]}]
    until(lambda: client.get(PODS.path("default", "p"))["status"].get("resourceClaimStatuses") == names)


def test_pod_put_on_a_node_without_the_scheduler_gets_its_reservation(client, controller):
    """Of a claim that is allocated already."""
    claim = a_claim(client, [])
    pod = a_pod(client, nodeName="n", resourceClaims=[{"name": "gpu", "resourceClaimName": claim["metadata"]["name"]}])
    reserved = until(lambda: claims(client)[0]["status"].get("reservedFor"))
    assert reserved == [{"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}]


def test_conflict_is_tried_again(server, client, controller):
    """Somebody else wrote the claim in between."""
    pod = a_pod(client)
    a_claim(client, [("p", pod["metadata"]["uid"])])
    server.faults.fail(409, times=2, method="PUT")
    delete_now(client, pod)
    until(lambda: not claims(client)[0]["metadata"].get("finalizers"))
