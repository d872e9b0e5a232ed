"""One real cluster for the whole suite; every test in this folder needs it."""

import os
from pathlib import Path

import pytest

from tests.cluster.build import binaries
from tests.cluster.cluster import Cluster
from tests.cluster.lanewise import Lanewise
from tests.cluster.places import ClusterError
from tests.e2e.site import Site

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.timeout(600), append=False)


@pytest.fixture(scope="session")
def cluster():
    """A started cluster, forgotten at the end; with `LANEWISE_KEEP_CLUSTER=1` it stays, to be looked at."""
    try:
        started = Cluster(binaries())
        started.start()
    except ClusterError as error:
        pytest.exit(f"the suite needs the real cluster: {error}", returncode=2)
    yield started
    if os.environ.get("LANEWISE_KEEP_CLUSTER"):
        print(f"\nkept: export KUBECONFIG={started.admin_kubeconfig}; kubectl is {started.kubectl_path}")
    else:
        started.wipe()


@pytest.fixture(scope="session")
def lanewise(cluster):
    """Lanewise installed from deploy/, both parts running on a simulated HGX H100."""
    installed = Lanewise(cluster)
    installed.install()
    return installed


@pytest.fixture
def site(lanewise):
    """Both parts running and eight GPUs published; afterwards what the test stopped runs again and what it made is gone."""
    here = Site(lanewise.cluster, lanewise)
    here.make_whole()
    yield here
    here.make_whole()
    here.clean()
