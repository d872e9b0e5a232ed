"""The key of the built programs changes with what they are made of; what is missing is said in one sentence."""

import dataclasses
import shutil

import pytest

from tests.cluster import build
from tests.cluster.__main__ import main
from tests.cluster.places import ClusterError


def test_key_follows_the_pinned_modules_and_the_flags(tmp_path):
    """Another pin or another linker flag is another key; the same ones, in whatever folder, are the same."""
    work = build.compilations()
    copied = tuple(dataclasses.replace(item, folder=tmp_path / item.folder.name) for item in work)
    for item in work:
        shutil.copytree(item.folder, tmp_path / item.folder.name, dirs_exist_ok=True)
    assert build.key(copied) == build.key(work)
    flags = (*copied[:-1], dataclasses.replace(copied[-1], linker_flags="-w"))
    assert build.key(flags) != build.key(work)
    (tmp_path / "runtime/go.sum").write_text("another")
    assert build.key(copied) != build.key(work)


@pytest.mark.parametrize(("asked", "stamped"), [("", "v1.37.2"), ("1.37", "v1.37.2"), ("1.36", "v1.36.3")])
def test_kubernetes_programs_carry_the_pinned_version(monkeypatch, asked, stamped):
    """kubectl needs a version it can parse; which one there is for the environment to say."""
    monkeypatch.setenv(build.VERSION_VARIABLE, asked)
    assert build.compilations()[0].linker_flags.endswith(f"version.gitVersion={stamped}")


def test_kubernetes_that_is_not_pinned_is_refused(monkeypatch):
    """Before anything is built, and with those that there are."""
    monkeypatch.setenv(build.VERSION_VARIABLE, "1.12")
    with pytest.raises(ClusterError, match=r"no Kubernetes 1\.12 here; choose one of 1\.36, 1\.37$"):
        build.compilations()


def test_missing_go_is_named(tmp_path, monkeypatch, capsys):
    """Exit code 2 and one sentence, not a traceback."""
    monkeypatch.setenv("LANEWISE_CACHE", str(tmp_path))
    monkeypatch.setattr(build.shutil, "which", lambda name, path=None: None if name == "go" else f"/usr/bin/{name}")
    assert main(["build"]) == 2
    assert capsys.readouterr().err == (
        "tests.cluster: building this needs Go 1.26 or newer and there is no go in PATH: https://go.dev/dl/\n"
    )


def test_missing_runc_is_named_to_a_user_who_may_not_install_it(tmp_path, monkeypatch):
    """Only root installs packages; anybody else reads the command."""
    monkeypatch.setenv("LANEWISE_CACHE", str(tmp_path))
    monkeypatch.setattr(build.shutil, "which", lambda name, path=None: None)
    monkeypatch.setattr(build.os, "geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match=r"apt-get install runc busybox-static$"):
        build.build()
