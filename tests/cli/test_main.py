"""The `lanewise` command as a user meets it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from api.version import VERSION
from cli.main import main
from tests.support.fake_nvml import FakeGpu, FakeNvml, installed
from tests.support.machines import ALL, TWO_GPUS

TABLE = """\
driver 580.105.08, CUDA 13.0 (simulated)

GPU          PRODUCT                MEMORY     MIG  MINOR  ROOT        SWITCH        NUMA  UUID
gpu-53-00-0  NVIDIA H100 80GB HBM3  81559 MiB  -    0      pci0000:50  0000:51:00.0  0     GPU-first
gpu-64-00-0  NVIDIA H100 80GB HBM3  81559 MiB  -    1      pci0000:60  -             1     GPU-second

NIC           KIND        NAMES       ROOT        SWITCH        NUMA  VIRTUAL OF
0000:54:00.0  infiniband  ib0,mlx5_0  pci0000:50  0000:51:00.0  0     -
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine file with two GPUs."""
    path = tmp_path / "two.yaml"
    text = TWO_GPUS.replace("53:00.0, numa", "53:00.0, uuid: GPU-first, numa")
    path.write_text(text.replace("64:00.0, numa", "64:00.0, uuid: GPU-second, numa"))
    return path


def test_discover_prints_a_table(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where every GPU and NIC sits."""
    assert main(["discover", "--machine", str(machine)]) == 0
    assert capsys.readouterr().out == TABLE


def test_discover_prints_an_inventorys_spec(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For programs, in the words of the NodeInventory."""
    assert main(["discover", "--machine", str(machine), "-o", "json"]) == 0
    spec = json.loads(capsys.readouterr().out)
    assert [gpu["name"] for gpu in spec["gpus"]] == ["gpu-53-00-0", "gpu-64-00-0"]
    assert spec["simulated"] is True


def test_discover_says_what_was_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On this machine, through NVML."""
    with installed(FakeNvml([FakeGpu(minor=0), FakeGpu(bus_id=b"00000000:64:00.0", uuid=b"GPU-1", minor=0)])):
        assert main(["discover", "--sysfs-root", str(tmp_path), "--proc-root", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "no GPU\n" in out
    assert "0000:53:00.0        device minor 0 is reported for several GPUs: 0000:53:00.0, 0000:64:00.0\n" in out


def test_discover_without_driver_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence, exit code 2."""
    with installed(None):
        assert main(["discover", "--driver-root", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"error: no NVIDIA driver below {tmp_path}: libnvidia-ml.so.1 was not found "
        "(install the driver, or name where it is with --driver-root; the plugin looks again by itself)\n"
    )


def test_every_shipped_machine_passes_its_check(capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each."""
    assert main(["machine", "check", *map(str, ALL)]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) == len(ALL)
    assert "hgx-h100.yaml: hgx-h100; GPUs: 8, NICs: 9\n" in out


def test_bad_machine_files_are_all_told(machine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each fault of each file, exit code 2; the good ones are said to be good."""
    bad, gone = tmp_path / "bad.yaml", tmp_path / "gone.yaml"
    bad.write_text("name: bad\ngpu: []\ntree: {}\n")
    assert main(["machine", "check", str(bad), str(machine), str(gone)]) == 2
    captured = capsys.readouterr()
    assert captured.out == f"{machine}: two; GPUs: 2, NICs: 1\n"
    assert captured.err == (
        f"error: {bad}: gpu: is no field (did you mean gpus?)\n"
        f"error: {bad}: gpus: is missing (list the GPUs, or write gpus: [] for a machine without one)\n"
        f"error: {gone}: cannot be read: No such file or directory "
        "(name a machine file such as examples/machines/hgx-h100.yaml)\n"
    )


@pytest.mark.parametrize("arguments", [[], ["machine"], ["discover", "-o", "xml"], ["levitate"]])
def test_bad_command_line_has_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """As argparse has it."""
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "usage: lanewise" in capsys.readouterr().err


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The one that the distribution has."""
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"lanewise {VERSION}\n"


MALFORMED = {
    "empty": (b"", "is no mapping of fields"),
    "binary": (b"\xff\xfe\x00", "is not UTF-8 text"),
    "list": (b"- a\n", "is no mapping of fields"),
    "broken": (b"gpus: [", "is no YAML"),
    "deep": (b"[" * 1000, "is no YAML"),
    "two documents": (b"--- {}\n--- {}\n", "is no YAML"),
    "python": (b"!!python/object/apply:os.system [id]\n", "is no mapping of fields"),
    "gpus a number": (b"name: x\ngpus: 5\ntree: {}\n", "gpus: is no list"),
    "gpu a number": (b"name: x\ngpus: [5]\ntree: {}\n", "gpus[0]: is no mapping of fields"),
}


@pytest.mark.parametrize("command", [["machine", "check"], ["discover", "--machine"]], ids=["check", "discover"])
@pytest.mark.parametrize(("content", "words"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_machine_files_are_refused_with_their_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], content: bytes, words: str
) -> None:
    """One line for each fault, exit code 2, nothing on stdout."""
    path = tmp_path / "machine.yaml"
    path.write_bytes(content)
    assert main([*command, str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert all(line.startswith(f"error: {path}") and line.endswith(")") for line in lines)
    assert any(words in line for line in lines)


@pytest.mark.parametrize("command", [["machine", "check"], ["discover", "--machine"]], ids=["check", "discover"])
def test_a_directory_is_no_machine_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    """Said with the path."""
    assert main([*command, str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}: cannot be read: Is a directory (")


def test_it_runs_as_a_module() -> None:
    """python -m cli.main does what the command does."""
    done = subprocess.run([sys.executable, "-m", "cli.main", "version"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"lanewise {VERSION}\n")
