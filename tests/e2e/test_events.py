"""Why a pod does not start is said on the pod, and who has what is told to Prometheus."""

import socket
import urllib.request
from uuid import uuid4

from tests.cluster.lanewise import DRIVER, until
from tests.e2e.site import claim, pod
from tests.support.scraping import series, values


def ours(site, kind: str, name: str) -> list[dict]:
    """The events on one object that our plugin wrote."""
    items = site.cluster.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
    return [
        event
        for event in items
        if event.get("reportingController") == f"{DRIVER}/kubeletplugin"
        and (event["regarding"]["kind"], event["regarding"]["name"]) == (kind, name)
    ]


def a_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def page(port: int):
    """What Prometheus would get, as a page function."""

    def ask(accept: str) -> tuple[str, bytes]:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.headers["Content-Type"], answer.read()

    return ask


def a_claim_that_is_refused(name: str) -> dict:
    """The scheduler allocates it; the plugin does not understand its configuration."""
    made = claim(name)
    opaque = {"driver": DRIVER, "parameters": {"apiVersion": "example.com/v1", "kind": "Typo"}}
    made["spec"]["devices"]["config"] = [{"opaque": opaque}]
    return made


def test_a_claim_that_cannot_be_prepared_is_one_event_on_the_pod(site):
    """With what is the matter and what to do; the kubelet's further tries are counted on it, and the claim says the same."""
    site.apply(a_claim_that_is_refused("odd"), pod("odd", claims=["odd"]))
    until("the pod is told", lambda: ours(site, "Pod", "odd"), 120)
    until("a second try is counted", lambda: ours(site, "Pod", "odd")[0].get("series", {}).get("count", 1) >= 2, 180)
    (event,) = ours(site, "Pod", "odd")
    assert (event["type"], event["reason"], event["action"]) == ("Warning", "UnknownParameters", "Prepare")
    assert event["regarding"]["uid"] == site.pod("odd")["metadata"]["uid"]
    what, _, remedy = event["note"].partition("; ")
    assert what.startswith("claim default/odd: config[0].parameters: ")
    assert "Typo" in what
    assert remedy == f"take the config for {DRIVER} out of the claim (or its template), and create the claim anew"
    (same,) = ours(site, "ResourceClaim", "odd")
    assert (same["note"], same["reason"]) == (event["note"], event["reason"])
    assert event["note"] in site.events("Pod", "odd"), "as kubectl describe pod shows it"


def test_a_claim_that_is_prepared_is_no_event(site):
    """Nothing to say."""
    site.apply(claim("fine"), pod("fine", claims=["fine"]))
    site.running("fine")
    assert ours(site, "Pod", "fine") == ours(site, "ResourceClaim", "fine") == []


def test_metrics_tell_what_the_container_sees_through_an_update(site):
    """Which claim has which GPU, by uuid. Of two plugins on one host the second gets the port when the first has gone, and
    knows the same; the refused claim is counted by its kind."""
    port = a_free_port()
    site.plugin.stop()
    old = site.lanewise.start_plugin(f"--http-port={port}", name="lanewise-old", pod_uid=str(uuid4()))
    try:
        site.published(60)
        site.apply(
            claim("seen"), pod("seen", claims=["seen"]), a_claim_that_is_refused("odd"), pod("odd", claims=["odd"])
        )
        site.running("seen")
        (uuid,) = site.seen("seen").uuids.values()

        def holders(accept: str = "") -> dict[str, str]:
            return {
                dict(labels)["uuid"]: f"{dict(labels)['claim_namespace']}/{dict(labels)['claim_name']}"
                for name, labels in series(page(port), accept)
                if name == "lanewise_claim_device"
            }

        assert holders() == holders("application/openmetrics-text; version=1.0.0") == {uuid: "default/seen"}
        until(
            "the refusal is counted",
            lambda: values(page(port), "lanewise_prepares_total").get(("localhost", "UnknownParameters")),
            120,
        )
        new = site.lanewise.start_plugin(f"--http-port={port}", name="lanewise-new", pod_uid=str(uuid4()))
        try:
            until("the second plugin waits for the port", lambda: "port taken" in new.log)
            old.stop()
            until("it has the port", lambda: "port had" in new.log, 30)
            assert holders() == {uuid: "default/seen"}
            assert values(page(port), "lanewise_devices") == {
                ("localhost", "held"): 1,
                ("localhost", "ailing"): 0,
                ("localhost", "free"): 7,
            }
            site.delete(pod("seen"))
            until("the claim leaves no series", lambda: not holders())
            site.delete(pod("odd"))
        finally:
            new.stop()
    finally:
        if old.pid is not None:
            old.stop()
