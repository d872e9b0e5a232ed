"""How logs look."""

import io
import json

import pytest
import structlog

from api import logs


def test_json_lines_have_event_time_and_fields():
    """One object a line, exceptions as data."""
    stream = io.StringIO()
    logs.configure("json", "info", stream=stream)
    log = structlog.get_logger("test")
    log.debug("not shown")
    try:
        {}["bäd"]
    except KeyError:
        log.exception("node not reconciled", node="node-a")
    (line,) = stream.getvalue().splitlines()
    entry = json.loads(line)
    assert (entry["event"], entry["node"], entry["level"]) == ("node not reconciled", "node-a", "error")
    assert entry["time"].endswith("Z")
    assert entry["exception"][0]["exc_value"] == "'bäd'"
    assert "bäd" in line


def test_console_lines_are_for_people():
    """Without colours where nobody sees them."""
    stream = io.StringIO()
    logs.configure("console", "debug", stream=stream)
    structlog.get_logger("test").info("node reconciled", node="node-a")
    assert "node reconciled" in stream.getvalue()
    assert "node=node-a" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_is_written_to_for_people(monkeypatch, terminal):
    """Unless told otherwise; a pod's stderr is none."""
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    logs.configure("auto", "info", stream=stream)
    structlog.get_logger("test").info("node reconciled", node="node-a")
    assert stream.getvalue().startswith("{") is not terminal


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_traceback_shows_no_variables(log_format):
    """One of them may be a token, and logs are read by many."""
    stream = io.StringIO()
    logs.configure(log_format, "info", stream=stream)
    headers = {"Authorization": f"Bearer {'s3cret'[::-1]}"}
    try:
        {}[len(headers)]
    except KeyError:
        structlog.get_logger("test").exception("call failed")
    assert "KeyError" in stream.getvalue()
    assert "terc3s" not in stream.getvalue()
