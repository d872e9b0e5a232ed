"""Tokens in files."""

import pytest
from structlog.testing import capture_logs

from api.kube.credentials import TokenFile
from api.refusals import Refused


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "token"
    path.write_text("first\n")
    return path


def test_token_is_read_again_after_a_minute(file):
    """A rotated token is picked up in time, and the file is not read for each call."""
    now = [0.0]
    tokens = TokenFile(file, clock=lambda: now[0])
    file.write_text("second")
    now[0] = 59.0
    assert tokens.token() == "first"
    now[0] = 60.0
    assert tokens.token() == "second"


def test_rejected_token_is_read_again_at_once(file):
    """After a 401 nobody waits for the minute to pass."""
    tokens = TokenFile(file, clock=lambda: 0.0)
    file.write_text("second")
    tokens.expire()
    assert tokens.token() == "second"


def test_file_that_vanishes_leaves_the_last_token(file):
    """In the moment of rotation the last token is better than none."""
    tokens = TokenFile(file, clock=lambda: 0.0)
    file.unlink()
    tokens.expire()
    with capture_logs() as logs:
        assert tokens.token() == "first"
    assert [entry["event"] for entry in logs] == ["token file could not be read again"]


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe"])
def test_file_without_token_is_refused_at_the_start(file, content):
    """Emptiness is said when we start, not with the first 401."""
    file.write_bytes(content)
    with pytest.raises(Refused) as caught:
        TokenFile(file)
    assert caught.value.reason.source == str(file)
