"""Upstream's programs for the tests of this folder, which run in the e2e stage: building them takes minutes at first."""

from pathlib import Path

import pytest

from tests.cluster.places import ClusterError
from tests.upstream.build import build

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.timeout(1800), append=False)


@pytest.fixture(scope="session")
def built():
    """Builds the tool of a folder here and tells where its program is."""

    def program(tool: str) -> Path:
        try:
            return build(tool)
        except ClusterError as error:
            pytest.exit(f"the suite needs upstream's programs: {error}", returncode=2)

    return program
