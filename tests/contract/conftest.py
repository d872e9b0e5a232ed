"""The two API servers that have to answer alike: ours in this process, and the real one."""

import itertools
import os
from pathlib import Path

import pytest
import urllib3

from api.kube.config import load
from api.kube.tls import context_for
from cli.sandbox.apiserver import ApiServer
from tests.cluster.build import binaries
from tests.cluster.cluster import Cluster
from tests.cluster.places import ClusterError
from tests.support.http_api import HttpApi

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def cluster():
    """A control plane without a node; `LANEWISE_CONTRACT_CLUSTER=FOLDER` takes one that runs there already."""
    folder = os.environ.get("LANEWISE_CONTRACT_CLUSTER")
    if folder:
        yield Cluster(binaries(), Path(folder), node=False)
        return
    try:
        started = Cluster(binaries(), node=False)
        started.start()
    except ClusterError as error:
        pytest.exit(f"the suite needs the real cluster: {error}", returncode=2)
    yield started
    started.wipe()


@pytest.fixture(params=["sandbox", pytest.param("real", marks=pytest.mark.cluster)])
def api(request):
    """One server to speak to, as administrator."""
    if request.param == "real":
        server = load(request.getfixturevalue("cluster").admin_kubeconfig, {})
        speaker = HttpApi(server.url, real=True, pool=urllib3.PoolManager(ssl_context=context_for(server)))
        yield speaker
        speaker.close()
        return
    with ApiServer(bookmarks_seconds=1) as sandbox:
        speaker = HttpApi(sandbox.url, age=sandbox.store.compact)
        yield speaker
        speaker.close()


@pytest.fixture
def name(request):
    """A name that no other test uses on the shared server."""
    return f"c{os.getpid()}-{next(_numbers)}"
