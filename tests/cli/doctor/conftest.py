"""Directories with short paths: a socket path has 107 bytes, and pytest's own are long."""

import tempfile
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.support.plugin_sockets import Node


@pytest.fixture
def node():
    """Under /tmp, whatever TMPDIR says."""
    with capture_logs(), tempfile.TemporaryDirectory(prefix="lw-", dir="/tmp") as base:
        made = Node(Path(base))
        yield made
        for instance in made.instances:
            instance.stop(0)
