"""CDI files on disk."""

import json
import os
import stat
from pathlib import Path

import pytest

from api.refusals import Refused
from kubeletplugin.cdi.files import LEFTOVER_SECONDS, CannotKeep, CdiFiles, Unreadable
from kubeletplugin.cdi.spec import CdiDevice, Edits, Spec, to_document
from kubeletplugin.disk import LocalDisk

DRIVER = "gpu.lanewise.dev"


class CountingDisk(LocalDisk):
    """The real disk, with a count of writes; or a full one."""

    def __init__(self, *, full: bool = False) -> None:
        self.writes = 0
        self.full = full

    def write(self, path: Path, content: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        self.writes += 1
        super().write(path, content, mode=mode, durable=durable)


def a_spec(uid: str, value: str = "1", kind: str = f"{DRIVER}/claim") -> Spec:
    return Spec(kind, (CdiDevice(f"{uid}-gpu-65-00-0", Edits(env=(f"A={value}",))),))


def some_files(directory: Path, disk: CountingDisk | None = None, driver: str = DRIVER) -> CdiFiles:
    return CdiFiles(directory, driver, disk or CountingDisk())


def test_file_is_in_the_directory(tmp_path: Path):
    """Case F1: no slash at the end of the root, and no stray `cdigpu…` beside it."""
    directory = Path(f"{tmp_path}/cdi")
    some_files(directory).write("u1", a_spec("u1"))
    assert [path.name for path in tmp_path.iterdir()] == ["cdi"]
    assert [path.name for path in directory.iterdir()] == ["gpu.lanewise.dev-claim_u1.json"]


def test_runtime_of_another_user_can_read(tmp_path: Path):
    """Directory 0755 and file 0644, past any umask."""
    before = os.umask(0o077)
    try:
        files = some_files(tmp_path / "cdi")
        files.write("u1", a_spec("u1"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "cdi").stat().st_mode) == 0o755
    assert stat.S_IMODE(files.path("u1").stat().st_mode) == 0o644


def test_what_was_written_is_read_back(tmp_path: Path):
    """The document, as the runtime reads it."""
    files = some_files(tmp_path)
    files.write("u1", a_spec("u1"))
    assert files.read("u1") == to_document(a_spec("u1"))
    assert files.read("u2") is None


def test_identical_file_is_not_written_again(tmp_path: Path):
    """Repeated prepares cost nothing, and wake no runtime that watches the directory."""
    disk = CountingDisk()
    files = some_files(tmp_path, disk)
    assert [files.write("u1", a_spec("u1")) for _ in range(3)] == [True, False, False]
    assert disk.writes == 1
    assert files.write("u1", a_spec("u1", "2"))
    assert disk.writes == 2


@pytest.mark.parametrize("damage", ["lost", "emptied", "truncated", "appended", "mode"])
def test_damaged_file_is_written_anew(tmp_path: Path, damage: str):
    """Whatever happened to it since (Case G1: a reboot empties /var/run)."""
    files = some_files(tmp_path / "cdi")
    files.write("u1", a_spec("u1"))
    path = files.path("u1")
    good = path.read_bytes()
    match damage:
        case "lost":
            path.unlink()
            path.parent.rmdir()
        case "emptied":
            path.write_bytes(b"")
        case "truncated":
            path.write_bytes(good[:-1])
        case "appended":
            path.write_bytes(good + b"x")
        case "mode":
            path.chmod(0o600)
    assert files.write("u1", a_spec("u1"))
    assert path.read_bytes() == good
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_release_of_one_claim_leaves_the_other(tmp_path: Path):
    """Case F8: one device in two claims."""
    files = some_files(tmp_path)
    files.write("u1", a_spec("u1"))
    files.write("u2", a_spec("u2"))
    assert files.remove("u1")
    assert files.uids() == {"u2"}
    assert files.read("u2") == to_document(a_spec("u2"))


def test_removing_what_is_not_there_succeeds(tmp_path: Path):
    """Removed is removed, directory and all."""
    assert not some_files(tmp_path).remove("u1")
    assert not some_files(tmp_path / "missing").remove("u1")


def test_invalid_spec_is_never_written(tmp_path: Path):
    """Case F3: a device without edits; a runtime would resolve no device of the file."""
    files = some_files(tmp_path)
    with pytest.raises(Refused, match="a device needs at least one edit"):
        files.write("u1", Spec(f"{DRIVER}/claim", (CdiDevice("u1-gpu", Edits()),), Edits(env=("A=1",))))
    with pytest.raises(Refused, match=r"kind: 'other/claim' in a file of gpu\.lanewise\.dev/claim"):
        files.write("u1", a_spec("u1", kind="other/claim"))
    assert list(tmp_path.iterdir()) == []


def test_common_edits_are_judged_whenever_they_change(tmp_path: Path):
    """Those that were found valid are not judged again; others are."""
    files = some_files(tmp_path)
    device = a_spec("u1").devices
    good, bad = Edits(env=("A=1",)), Edits(env=("A",))
    files.write("u1", Spec(f"{DRIVER}/claim", device, good))
    for _ in range(2):
        with pytest.raises(Refused, match=r"containerEdits\.env\[0\]: 'A' is not NAME=value"):
            files.write("u1", Spec(f"{DRIVER}/claim", device, bad))
    assert not files.write("u1", Spec(f"{DRIVER}/claim", device, good))


def test_files_of_others_are_not_ours(tmp_path: Path):
    """By name and by the kind inside; none is touched, whatever is called."""
    some_files(tmp_path, driver="nic.lanewise.dev").write("u1", a_spec("u1", kind="nic.lanewise.dev/claim"))
    others = {
        "nvidia.yaml": "cdiVersion: 0.5.0\n",
        "gpu.lanewise.dev-claim_u2.yaml": "{}",
        "gpu.lanewise.dev-claim_u3.json": json.dumps({**to_document(a_spec("u3")), "kind": "nvidia.com/gpu"}),
        "k8s.gpu.nvidia.com-claim_u4.json.1.tmp": "",
    }
    for name, content in others.items():
        (tmp_path / name).write_text(content)
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / "gpu.lanewise.dev-claim_u5.json.d").mkdir()
    before = sorted(path.name for path in tmp_path.iterdir())
    files = some_files(tmp_path)
    assert files.uids() == frozenset()
    assert files.unreadable() == ()
    assert files.read("u3") is None
    assert not files.remove("u3")
    assert files.sweep(now=1e9) == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_directory_of_our_name_is_none_of_ours(tmp_path: Path):
    """Runtimes pass it by; it keeps no claim from being released, only from being prepared."""
    files = some_files(tmp_path)
    files.path("u1").mkdir()
    assert (files.read("u1"), files.uids(), files.unreadable()) == (None, frozenset(), ())
    assert not files.remove("u1")
    with pytest.raises(Refused) as refused:
        files.write("u1", a_spec("u1"))
    assert isinstance(refused.value.reason, CannotKeep)
    assert files.path("u1").is_dir()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"kind": "gpu.lanewise.dev/claim"}', "\udcff", "[" * 100_000]
)
def test_file_no_runtime_can_read_is_said_and_can_go(tmp_path: Path, content: str):
    """It is no claim's file, and hides none of the good ones."""
    files = some_files(tmp_path)
    files.write("u1", a_spec("u1"))
    files.path("u2").write_bytes(content.encode(errors="surrogateescape"))
    assert isinstance(files.read("u2"), Unreadable)
    assert files.uids() == {"u1"}
    (unreadable,) = files.unreadable()
    assert unreadable.path == files.path("u2")
    assert files.remove("u2")
    assert files.unreadable() == ()


def test_leftovers_of_cut_off_writes_are_swept(tmp_path: Path):
    """Old ones only: a young one may be another instance's, writing right now."""
    files = some_files(tmp_path)
    files.write("u1", a_spec("u1"))
    old, young = tmp_path / "gpu.lanewise.dev-claim_u2.json.7.tmp", tmp_path / "gpu.lanewise.dev-claim_u3.json.8.tmp"
    for path, written in ((old, 1000.0), (young, 1001.0)):
        path.write_text("{")
        os.utime(path, (written, written))
    assert files.sweep(now=1000.0 + LEFTOVER_SECONDS) == (old,)
    assert sorted(path.name for path in tmp_path.iterdir()) == [files.path("u1").name, young.name]
    assert some_files(tmp_path / "missing").sweep(now=0.0) == ()


def test_full_disk_is_told_with_the_path(tmp_path: Path):
    """One claim is refused, with words for its Event; nothing is left behind."""
    files = some_files(tmp_path, CountingDisk(full=True))
    with pytest.raises(Refused) as refused:
        files.write("u1", a_spec("u1"))
    assert isinstance(refused.value.reason, CannotKeep)
    assert refused.value.reason.what == f"{files.path('u1')}: No space left on device"
    assert list(tmp_path.iterdir()) == []


def test_unsafe_uid_reaches_no_path(tmp_path: Path):
    """From a record or a call, never into another directory."""
    files = some_files(tmp_path / "cdi")
    for call in (files.read, files.remove, lambda uid: files.write(uid, a_spec("u1"))):
        with pytest.raises(Refused, match="cannot name a CDI device"):
            call("../u1")


def test_bad_directory_is_told_at_start(tmp_path: Path):
    """One sentence with the path and the remedy."""
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused) as refused:
        some_files(tmp_path / "file" / "cdi").ensure_directory()
    assert str(refused.value) == f"{tmp_path}/file/cdi: Not a directory (give --cdi-dir a directory for CDI files)"
    with pytest.raises(Refused, match="'cdi' is no absolute path"):
        some_files(Path("cdi"))
    with pytest.raises(Refused, match="no CDI vendor"):
        some_files(tmp_path, driver="1gpu.example.com")


def test_directory_is_made_at_start(tmp_path: Path):
    """After a reboot it is not there; making it again is no fault."""
    files = some_files(tmp_path / "run" / "cdi")
    files.ensure_directory()
    files.ensure_directory()
    assert files.directory.is_dir()
