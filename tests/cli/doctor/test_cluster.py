"""Asking the API server: what is there, what is not, and what may not be seen."""

import pytest

from api.kube.errors import ApiError, Garbled, Unauthorized
from cli.doctor import cluster
from cli.doctor.cluster import Unknown, ask
from cli.doctor.rights import FORBIDDEN, NEEDED
from tests.support.controlled_cluster import a_town
from tests.support.held_devices import a_gpu_class

DRIVER, NAMESPACE = "gpu.lanewise.dev", "lanewise-system"
METRICS = """\
# TYPE kubernetes_feature_enabled gauge
kubernetes_feature_enabled{name="DRADeviceTaints",stage=""} 1
kubernetes_feature_enabled{name="DRAExtendedResource",stage="BETA"} 0
kubernetes_build_info{major="1"} 1
"""


class Answers:
    """A client of a real server, with what that server lacks added."""

    def __init__(self, client):
        self._client = client
        self.reviewed = []

    def __getattr__(self, name):
        return getattr(self._client, name)

    def text(self, path):
        assert path == "/metrics"
        return METRICS

    def create(self, path, obj):
        assert path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        self.reviewed.append(obj["spec"]["user"])
        return {"status": {"allowed": obj["spec"]["resourceAttributes"]["resource"] != "resourceslices"}}


def asked(client):
    return ask(client, driver=DRIVER, namespace=NAMESPACE, node="node-a")


def test_everything_that_is_there_is_found():
    """Node, inventory, Leases, class, definition, gates, rights; what is not there is None."""
    with a_town() as town:
        owner = town.node(nvidia_com__gpu="8")
        town.plugin(owner)
        town.api.store.put(a_gpu_class())
        answers = Answers(town.client)
        found = asked(answers)
    assert found.version.startswith("v1.")
    assert found.serves_dra is True
    assert found.gates == {"DRADeviceTaints": True, "DRAExtendedResource": False}
    assert found.crd["metadata"]["name"] == cluster.CRD
    assert found.gpu_class["metadata"]["name"] == DRIVER
    assert found.leader is None
    assert [lease.name for lease in found.plugin_leases] == ["lease-i1"]
    assert found.node_object["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert found.inventory["metadata"]["name"] == "node-a"
    assert set(found.policies.values()) == {None}
    assert found.foreign == ()
    assert {right for right, allowed in found.granted.items() if not allowed} == {
        right for right in (*NEEDED, *FORBIDDEN) if right.resource == "resourceslices"
    }
    assert len(answers.reviewed) == len(NEEDED) + len(FORBIDDEN)


def test_what_may_not_be_seen_is_unknown_and_the_rest_is_asked():
    """With the API server's words, and where the rights are to be had."""

    def refuse(user, verb, path):
        return "not for you" if "nodeinventories" in path and "definitions" not in path else None

    with a_town(tokens={"v": "viewer"}, authorize=refuse) as town:
        town.node()
        found = asked(Answers(town.client))
    assert isinstance(found.inventory, Unknown)
    assert "not for you" in found.inventory.why
    assert found.inventory.remedy == "run it with the rights of deploy/doctor-job.yaml"
    assert found.node_object is not None


def test_a_server_that_does_not_know_us_ends_it():
    """Nothing can be asked: that is one fault and not twenty."""

    class Nobody(Answers):
        def get(self, path, query=None):
            raise Unauthorized(f"GET {path}", status=401, reason="Unauthorized", message="")

    with a_town() as town, pytest.raises(Unauthorized):
        asked(Nobody(town.client))


def test_metrics_are_fetched_as_text():
    """They are no JSON; and an error is told as any other."""
    with a_town() as town:
        town.api.faults.fail(403, times=1, path="/metrics")
        with pytest.raises(ApiError):
            town.client.text("/metrics")
        assert town.client.text("/version").startswith("{")


@pytest.mark.parametrize("answer", [{}, {"gitVersion": 5}])
def test_what_is_no_kubernetes_is_told_as_that(answer):
    """Some other server that answers everything with JSON."""

    class Other(Answers):
        def version(self):
            return answer

    with a_town() as town, pytest.raises(Garbled, match="/version"):
        asked(Other(town.client))
