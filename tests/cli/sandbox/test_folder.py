"""Where the sandbox keeps its files."""

import os
from pathlib import Path

import pytest

from api.names import GPU_DRIVER
from api.refusals import Refused
from cli.sandbox.folder import NodeFolder, make
from kubeletplugin.sockets.paths import socket_paths

UID = "0b52d13a-2a84-4d0e-9a6d-5f2f6c1f6f0d"


def test_sockets_of_a_node_fit_into_it() -> None:
    """A socket path has 107 bytes (Case H6)."""
    root = make(["node-a"])
    try:
        node = NodeFolder(root / "node-a")
        socket_paths(GPU_DRIVER, node.registry_dir, node.plugin_dir, pod_uid=UID)
        assert root.stat().st_mode & 0o077 == 0
    finally:
        root.rmdir()


def test_a_folder_with_a_long_path_is_passed_over(tmp_path: Path) -> None:
    """$TMPDIR may be one."""
    deep, short = tmp_path / ("x" * 100), Path("/tmp")
    deep.mkdir()
    root = make(["node-a"], (deep, short))
    root.rmdir()
    assert root.parent == short


def test_what_is_the_matter_with_each_is_said(tmp_path: Path) -> None:
    """Too long; not there; not ours to write."""
    deep, gone = tmp_path / ("x" * 100), Path("/nowhere")
    deep.mkdir()
    with pytest.raises(Refused) as refused:
        make(["node-a"], (deep, gone))
    what = refused.value.reason.what
    assert what.startswith(f"no place for a temporary folder: {deep}: ")
    assert "bytes longer than the 107" in what
    assert "; /nowhere: " in what
    assert "TMPDIR" in refused.value.reason.remedy


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_not_writable_is_refused() -> None:
    """Before anything is started."""
    with pytest.raises(Refused, match="not writable"):
        make(["node-a"], (Path("/"),))
