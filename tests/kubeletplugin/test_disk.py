"""File operations that survive a crash."""

import os
import stat
from pathlib import Path

import pytest

from kubeletplugin.disk import LocalDisk

DISK = LocalDisk()


@pytest.fixture
def synced(monkeypatch):
    """What was synced, in order: `file` or the name of a directory."""
    calls = []
    real = os.fsync

    def fsync(descriptor):
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        calls.append(path.name if path.is_dir() else "file")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return calls


def test_write_replaces_the_whole_file(tmp_path):
    """Old content longer than the new leaves no tail."""
    path = tmp_path / "a.json"
    DISK.write(path, b"long content")
    DISK.write(path, b"short")
    assert path.read_bytes() == b"short"
    assert list(tmp_path.iterdir()) == [path]


def test_write_is_durable_before_it_is_visible(tmp_path, synced):
    """The file is synced, then renamed, then its directory is synced."""
    DISK.write(tmp_path / "a.json", b"x")
    assert synced == ["file", tmp_path.name]


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_write_gives_the_mode_asked_for(tmp_path, mode):
    """Whatever the umask says: a CDI file must be readable for a runtime that is not root."""
    before = os.umask(0o077)
    try:
        DISK.write(tmp_path / "a", b"x", mode=mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode


def test_write_that_fails_leaves_the_old_file_and_no_temporary(tmp_path, monkeypatch):
    """A full disk at the sync: a reader finds what was there."""
    path = tmp_path / "a"
    DISK.write(path, b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        DISK.write(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_write_goes_on_after_a_short_write(tmp_path, monkeypatch):
    """The kernel may take less than it is given."""
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:3]))
    DISK.write(tmp_path / "a", b"0123456789")
    assert (tmp_path / "a").read_bytes() == b"0123456789"


def test_write_needs_its_directory(tmp_path):
    """Making directories is for those who know which."""
    with pytest.raises(FileNotFoundError):
        DISK.write(tmp_path / "none" / "a", b"x")


def test_remove_may_be_repeated_and_is_durable(tmp_path, synced):
    """A file that is not there is removed already."""
    (tmp_path / "a").touch()
    DISK.remove(tmp_path / "a")
    DISK.remove(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
    assert synced == [tmp_path.name]


def test_move_replaces_and_syncs_both_directories(tmp_path, synced):
    """Neither the old nor the new name may come back after a power loss."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / "a").write_text("new")
    (tmp_path / "two" / "a").write_text("old")
    DISK.move(tmp_path / "one" / "a", tmp_path / "two" / "a")
    assert (tmp_path / "two" / "a").read_text() == "new"
    assert not (tmp_path / "one" / "a").exists()
    assert synced == ["two", "one"]


def test_link_is_made_once_only(tmp_path):
    """It serves as a claim on a name: whoever comes second is told, and changes nothing."""
    DISK.link(tmp_path / "gpu", "uid-1")
    with pytest.raises(FileExistsError):
        DISK.link(tmp_path / "gpu", "uid-2")
    assert (tmp_path / "gpu").readlink() == Path("uid-1")


def test_unlink_may_be_repeated(tmp_path):
    """Of a link whose target never existed, too."""
    DISK.link(tmp_path / "gpu", "uid-1")
    DISK.unlink(tmp_path / "gpu")
    DISK.unlink(tmp_path / "gpu")
    assert list(tmp_path.iterdir()) == []
