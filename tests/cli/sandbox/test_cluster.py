"""The whole cluster in one process: what it is when it is up, and that nothing is left when it is not."""

import os
from pathlib import Path

import pytest

from cli.sandbox import cluster as cluster_module
from cli.sandbox import workloads
from cli.sandbox.cluster import ClusterFailed, SandboxCluster
from tests.support.machines import TWO_GPUS

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    path = tmp_path / "two.yaml"
    path.write_text(TWO_GPUS)
    return path


def left_running(folder: Path) -> list[str]:
    """Command lines of processes that name the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            found += [line] if str(folder) in line else []
    return found


def test_two_nodes_are_published_and_nothing_is_left(machine: Path) -> None:
    """Each with a plugin of its own, under the rights of deploy/."""
    up: list[str] = []
    with SandboxCluster({"node-a": machine, "node-b": machine}, said=up.append) as cluster:
        folder = cluster.folder
        slices = cluster.objects("resourceslices")
        assert sorted(obj["spec"]["nodeName"] for obj in slices) == ["node-a", "node-b"]
        uuids = {d["attributes"]["uuid"]["string"] for obj in slices for d in obj["spec"]["devices"]}
        assert len(uuids) == 4
        users = {(r.user, r.method) for r in cluster.api.requests if "resourceslices" in r.path and r.method == "POST"}
        assert users == {("system:serviceaccount:lanewise-system:lanewise-controller", "POST")}
        assert len(left_running(folder)) == 3
    assert not folder.exists()
    assert left_running(folder) == []
    assert up[0] == "API server"
    assert up[-2:] == ["Lanewise on node-a", "Lanewise on node-b"]


def test_a_program_that_ends_is_told_with_its_last_words(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And all else ends with it."""
    monkeypatch.setitem(workloads.PROGRAMS, "lanewise-controller", "no.such.module")
    cluster = SandboxCluster({"node-a": machine})
    with pytest.raises(ClusterFailed) as failed, cluster:
        raise AssertionError("it must not come so far")
    assert failed.value.what == "the controller ended with exit code 1"
    words = {path.name: lines for path, lines in failed.value.words.items()}
    assert "No module named 'no'" in words["controller.log"][-1]
    assert not cluster.folder.exists()
    assert left_running(cluster.folder) == []


def test_what_does_not_come_in_time_is_told(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named by what was waited for."""
    monkeypatch.setattr(cluster_module, "_SETTLING", cluster_module._SETTLING | {"Published"})
    monkeypatch.setattr(cluster_module, "PATIENCE_SECONDS", 3.0)
    with pytest.raises(ClusterFailed, match="not within 3 s: a word of the controller on node-a"):
        SandboxCluster({"node-a": machine}).__enter__()


def test_a_fault_while_it_starts_leaves_nothing(machine: Path) -> None:
    """Whatever it is; here somebody who listens and breaks."""
    cluster = SandboxCluster({"node-a": machine}, said=lambda part: 1 / (part != "scheduler"))
    with pytest.raises(ZeroDivisionError):
        cluster.__enter__()
    assert not cluster.folder.exists()
    assert left_running(cluster.folder) == []
