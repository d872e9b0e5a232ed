"""A world below /tmp, whatever TMPDIR says: a socket path has 107 bytes."""

import tempfile
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.support.kubelet_world import World


@pytest.fixture
def world(server):
    with tempfile.TemporaryDirectory(prefix="lw-", dir="/tmp") as base, capture_logs():
        made = World(Path(base), server)
        yield made
        made.close()
