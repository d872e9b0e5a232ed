"""What the controller says while a watch is not open."""

from structlog.testing import capture_logs

from api.kube.paths import SLICES
from controller.run import Controller
from controller.settings import Settings
from tests.support.controlled_cluster import a_client, a_controller, a_town

SETTINGS = Settings(leader_election=False)


def test_server_without_our_version_of_the_api_is_told_with_a_remedy():
    """Case I9: we speak resource.k8s.io/v1 only. Where the server has another, readiness and log say which one is missing;
    nothing is published meanwhile, and when the API is turned on we go on by ourselves."""
    with a_town() as town, a_client(town.api, "controller") as client:
        old = "the server could not find the requested resource"
        town.api.faults.fail(404, times=1_000, path=SLICES.path(), message=old)
        controller = Controller(client, SETTINGS)
        with capture_logs() as logs:
            controller.start()
            try:
                assert not controller.wait_synced(0.5)
                assert controller.why_not_ready() == (
                    f"the watch on resourceslices is not open: GET {SLICES.path()}: 404 NotFound: "
                    "the API server does not serve resource.k8s.io/v1"
                )
                town.api.faults.clear()
                assert controller.wait_synced(10)
            finally:
                controller.stop()
    (told,) = [entry for entry in logs if entry["event"] == "watch interrupted"]
    assert told["remedy"] == "Lanewise needs Kubernetes 1.34 or newer with this API on; see: kubectl api-versions"


def test_server_without_our_definitions_is_told_with_a_remedy():
    """The CRDs were forgotten, or removed under us."""
    with a_town() as town, a_client(town.api, "controller") as client:
        town.client.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodeinventories.lanewise.dev")
        controller = Controller(client, SETTINGS)
        with capture_logs() as logs:
            controller.start()
            try:
                assert not controller.wait_synced(0.5)
                assert controller.why_not_ready().endswith("the API server does not serve lanewise.dev/v1alpha1")
            finally:
                controller.stop()
    (told,) = [entry for entry in logs if entry["event"] == "watch interrupted"]
    assert told["remedy"] == "install the CRDs of this version: kubectl apply -k deploy"


def test_open_watches_are_ready():
    """Nothing to say."""
    with a_town() as town, a_controller(town, SETTINGS) as controller:
        town.plugin(town.node())
        town.wait(lambda: len(town.devices()) == 2)
        assert controller.why_not_ready() is None
