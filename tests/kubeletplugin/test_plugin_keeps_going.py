"""The plugin's own threads: what ends them, and what does not."""

import tempfile
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from api.refusals import BadInput, Refused
from kubeletplugin.plugin import Plugin
from kubeletplugin.settings import parse
from tests.support.controlled_cluster import SECONDS, a_client, a_town
from tests.support.machines import TWO_GPUS


@pytest.fixture
def registry():
    """Of a short path: a socket's has at most 107 bytes, and pytest's folders carry long names."""
    with tempfile.TemporaryDirectory(prefix="lw-", dir="/tmp") as directory:
        yield Path(directory)


@pytest.fixture
def plugin(tmp_path, registry):
    (tmp_path / "machine.yaml").write_text(TWO_GPUS)
    directories = {"registry-dir": registry, "plugin-dir": tmp_path / "plugin", "cdi-dir": tmp_path / "cdi"}
    flags = [f"--{flag}={directory}" for flag, directory in directories.items()]
    settings = parse(["--node-name=node-a", "--machine-nodes=plain", f"--machine={tmp_path}/machine.yaml", *flags], {})
    with a_town() as town, a_client(town.api, "plugin") as client:
        town.node("node-a")
        plugin = Plugin(settings, client, version="0.1.0")
        plugin.start()
        try:
            yield plugin
        finally:
            plugin.stop()


def test_a_stop_leaves_no_socket_though_they_are_just_being_opened_again(plugin, monkeypatch, tmp_path, registry):
    """Somebody removed a socket in the moment of the stop: what is being opened is closed as well."""
    opening, start = threading.Event(), plugin._sockets.start

    def start_late():
        opening.set()
        assert plugin._stopping.wait(SECONDS)
        start()

    monkeypatch.setattr(plugin._sockets, "start", start_late)
    (registration,) = registry.iterdir()
    registration.unlink()
    plugin._registration_changed()
    assert opening.wait(SECONDS)
    plugin.stop()
    assert list(registry.iterdir()) == []
    assert not (tmp_path / "plugin" / "dra.sock").exists()


def test_a_surprise_at_the_sockets_ends_no_thread(plugin, monkeypatch):
    """Nobody else would open them again, or say that the kubelet has let go of us."""
    surprised, again = threading.Event(), threading.Event()

    def registered():
        if not surprised.is_set():
            surprised.set()
            raise OSError("too many open files")
        again.set()
        return False

    monkeypatch.setattr(plugin._sockets, "registered", registered)
    plugin._registration_changed()
    assert surprised.wait(SECONDS)
    plugin._registration_changed()
    assert again.wait(SECONDS)


def test_a_directory_that_cannot_be_had_is_said_in_words(plugin, monkeypatch):
    """By the passes over the claims, which go on."""
    refused, again = threading.Event(), threading.Event()

    def restore():
        if not refused.is_set():
            refused.set()
            raise Refused(BadInput("/var/run/cdi", "Not a directory", "remove what is there"))
        again.set()

    monkeypatch.setattr(plugin._claims, "restore", restore)
    with capture_logs() as logs:
        plugin._restore_now.set()
        assert refused.wait(SECONDS)
        plugin._restore_now.set()
        assert again.wait(SECONDS)
    (said,) = [entry for entry in logs if entry["event"] == "claims not restored"]
    assert (said["log_level"], said["why"], said["remedy"]) == (
        "warning",
        "/var/run/cdi: Not a directory",
        "remove what is there",
    )
