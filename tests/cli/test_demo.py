"""`lanewise demo` as a newcomer meets it."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli import demo, shipped
from cli.main import main
from cli.sandbox import workloads
from cli.story.tale import Tale
from cli.story.view import NotAsTold
from tests.support.machines import TWO_GPUS

pytestmark = pytest.mark.timeout(120)

NO_GPU = "name: none\ngpus: []\ntree: {}\n"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    path = tmp_path / "two.yaml"
    path.write_text(TWO_GPUS)
    return path


def leftovers() -> set[str]:
    """Temporary folders of demos."""
    return {path.name for path in Path("/tmp").glob("lw-demo-*")}


def test_the_story_of_two_gpus(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Found, published, handed out, waited for, passed on, released; nothing left."""
    before = leftovers()
    code = main(["demo", "--machine", str(machine)])
    captured = capsys.readouterr()
    assert (code, captured.err) == (0, ""), captured
    out = captured.out
    chapters = re.findall(r"^\d\. (.*)$", out, re.MULTILINE)
    assert chapters == [
        "What the node plugin found",
        "What the controller published",
        "Pods ask for GPUs",
        "What the node plugin wrote for claim one-gpu",
        "What container main of pod one-gpu would see",
        "Pod one-gpu is deleted, and claim-template-1 gets its turn",
        "Everything is deleted",
    ]
    assert "node-a (2 GPUs, 1 NIC)" in out
    assert "Running: 3 pods. In use: 2 devices, all that can be used, none of them by two claims." in out
    assert re.search(
        r"^  one-gpu +main +one-gpu +gpu-53-00-0 +NVIDIA H100 80GB HBM3 +0000:53:00\.0$", out, re.MULTILINE
    )
    assert re.search(r"claim-template-1 has to wait\. The scheduler says why:\n  0/1 nodes are available", out)
    (uuid,) = re.findall(r"^  LANEWISE_DEVICE_GPU_53_00_0=(GPU-\S+)$", out, re.MULTILINE)
    assert f'"LANEWISE_DEVICE_GPU_53_00_0={uuid}"' in out
    assert "claim-template-1 runs, with gpu-53-00-0: the device that one-gpu had." in out
    assert "Still published: 2 devices, none in use." in out
    assert out.endswith("The cluster is gone, and with it all its files and processes.\n")
    assert leftovers() <= before


def test_a_machine_without_gpus_has_a_story_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is published, and the only pod waits."""
    path = tmp_path / "none.yaml"
    path.write_text(NO_GPU)
    assert main(["demo", "--machine", str(path)]) == 0
    out = capsys.readouterr().out
    assert "Nothing: no GPU to publish." in out
    assert "one-gpu has to wait." in out
    assert "CDI" not in out.partition("4. Everything is deleted")[0]


def test_what_is_not_as_told_ends_with_1_and_what_was_seen(
    machine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logs' ends come after it."""

    def wrong(_: object) -> None:
        raise NotAsTold("one pod that waits", "a, b")

    monkeypatch.setattr(Tale, "tell", wrong)
    assert main(["demo", "--machine", str(machine)]) == demo.FAILED
    captured = capsys.readouterr()
    assert "\nerror: expected one pod that waits; saw a, b\n" in captured.err
    assert "the end of controller.log:" in captured.err
    assert "The cluster is gone" not in captured.out


def test_a_program_that_dies_is_told_with_its_log(
    machine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1."""
    monkeypatch.setitem(workloads.PROGRAMS, "lanewise-kubeletplugin", "no.such.module")
    assert main(["demo", "--machine", str(machine)]) == demo.FAILED
    err = capsys.readouterr().err
    assert "error: the node plugin of node-a ended with exit code 1" in err
    assert "No module named 'no'" in err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read: No such file or directory (name a machine file such as"),
        ("name: x\ntree: {}\n", "gpus: is missing (list the GPUs, or write gpus: [] for a machine without one)"),
    ],
)
def test_a_machine_file_that_cannot_be_used_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, words: str
) -> None:
    """In a sentence, exit code 2, before anything is started."""
    path = tmp_path / "machine.yaml"
    if content is not None:
        path.write_text(content)
    assert main(["demo", "--machine", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"error: {path}: ")
    assert words in captured.err


def test_missing_parts_are_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs them."""
    monkeypatch.setattr(demo, "_NEEDED", {"no_such_module.at_all": "sandbox"})
    assert main(["demo"]) == 2
    assert capsys.readouterr().err == (
        "error: lanewise demo: it needs what the extras sandbox of Lanewise bring "
        "(pip install 'lanewise[node,sandbox]', or make demo in a checkout)\n"
    )


def test_an_installation_without_manifests_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather than tell half a story."""
    monkeypatch.setattr(shipped, "_ROOTS", (Path("/nowhere"), Path("/elsewhere")))
    assert main(["demo"]) == 2
    assert capsys.readouterr().err.startswith(
        "error: examples/machines/hgx-h100.yaml: is neither in /nowhere nor in /elsewhere ("
    )


@pytest.mark.parametrize(
    ("number", "until", "code"),
    [(signal.SIGTERM, "kubelet of node-a", 143), (signal.SIGINT, "ls /tmp/", 0)],
    ids=["while it starts", "while it is kept"],
)
def test_signals_end_it_and_leave_nothing(machine: Path, number: signal.Signals, until: str, code: int) -> None:
    """Programs and folder are gone. Ctrl-C is how a kept one is meant to end."""
    command = [sys.executable, "-m", "cli.main", "demo", "--keep", "--machine", str(machine)]
    with tempfile.TemporaryDirectory(prefix="lwt-", dir="/tmp") as home:
        environment = {**os.environ, "TMPDIR": home}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            told = ""
            while until not in told and (line := process.stdout.readline()):
                told += line
            assert list(Path(home).iterdir()) != []
            process.send_signal(number)
            told += process.stdout.read()
            err = process.stderr.read()
        assert process.returncode == code, told + err
        assert err == ("" if code == 0 else f"\nended by {number.name}; nothing is left running\n")
        assert list(Path(home).iterdir()) == []
        assert [line for line in command_lines() if home in line] == []


def command_lines() -> Iterator[str]:
    """Of all other processes."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                yield (entry / "cmdline").read_text().replace("\0", " ")
