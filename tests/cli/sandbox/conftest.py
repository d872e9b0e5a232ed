"""A started API server, and somebody to speak to it."""

import pytest

from cli.sandbox.apiserver import ApiServer
from tests.support.http_api import HttpApi


@pytest.fixture
def server():
    with ApiServer(bookmarks_seconds=0.05) as started:
        yield started


@pytest.fixture
def api(server):
    speaker = HttpApi(server.url)
    yield speaker
    speaker.close()
