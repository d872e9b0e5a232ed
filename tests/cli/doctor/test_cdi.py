"""The CDI directory, and files in it that are stale, broken, or not ours."""

import json
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from cli.doctor import cdi
from cli.doctor.cdi import CdiDirectory, CdiFile
from cli.doctor.mounts import Mount
from tests.support.diagnosis import lines, trouble

DRIVER = "gpu.lanewise.dev"
TMPFS = Mount("/run", "tmpfs", read_only=False)
OURS = CdiFile(f"{DRIVER}-claim_u1.json", "u1")
WELL = CdiDirectory(Path("/var/run/cdi"), True, True, TMPFS, (OURS, CdiFile("nvidia.yaml", None)), frozenset({"u1"}))


def test_a_directory_that_is_well():
    """Its file system, and whose files are in it."""
    assert lines(cdi.judge(WELL)) == [
        "ok cdi directory: /var/run/cdi (on tmpfs) can be written to",
        "ok cdi files: 1 file of ours for as many claims, 1 file of others, all valid",
    ]


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (replace(WELL, is_there=False), ["failure cdi directory: /var/run/cdi is not there"]),
        (
            replace(WELL, is_writable=False),
            ["failure cdi directory: /var/run/cdi (on tmpfs) cannot be written to"],
        ),
        (
            replace(WELL, mount=Mount("/run", "tmpfs", read_only=True)),
            ["failure cdi directory: /var/run/cdi (on tmpfs) cannot be written to"],
        ),
        (
            replace(WELL, records=frozenset()),
            [f"warning cdi files: {DRIVER}-claim_u1.json is for a claim that is not prepared here"],
        ),
        (
            replace(WELL, records=frozenset({"u1", "u2"})),
            ["warning cdi files: claim u2 is prepared and has no file"],
        ),
        (
            replace(WELL, files=(replace(OURS, problem="is no JSON"),)),
            [f"failure cdi files: {DRIVER}-claim_u1.json: is no JSON"],
        ),
        (
            replace(WELL, files=(OURS, CdiFile("nvidia.yaml", None, "kind: missing"))),
            ["warning cdi files: nvidia.yaml: kind: missing"],
        ),
    ],
)
def test_each_thing_that_can_be_wrong(seen, said):
    """One finding."""
    assert trouble(cdi.judge(seen)) == said


GOOD = {
    "cdiVersion": "0.6.0",
    "kind": "example.com/x",
    "devices": [{"name": "a", "containerEdits": {"env": ["A=b"]}}],
}


def test_looking_at_files(tmp_path):
    """Every file that a runtime would read is checked as it would; others are passed by."""
    files, plugin = tmp_path / "cdi", tmp_path / "plugin"
    files.mkdir()
    (plugin / "claims").mkdir(parents=True)
    (plugin / "claims/u1.json").touch()
    (files / f"{DRIVER}-claim_u1.json").write_text(json.dumps(GOOD))
    (files / f"{DRIVER}-claim_u2.json").write_text("{")
    (files / "good.yaml").write_text(json.dumps(GOOD))
    (files / "empty.yaml").write_text(json.dumps({**GOOD, "devices": [{"name": "a", "containerEdits": {}}]}))
    (files / "tab.yaml").write_text("a:\n\t- b")
    (files / "deep.json").write_text("[" * 100_000)
    (files / "notes.txt").write_text("not read")
    seen = cdi.look(DRIVER, files, plugin, Path("/proc"))
    assert seen.records == {"u1"}
    assert {file.name: (file.claim, file.problem) for file in seen.files} == {
        "deep.json": (None, "is no JSON"),
        "empty.yaml": (
            None,
            # Case F3: a device without edits resolves nowhere.
            "devices[0].containerEdits: empty; a device needs at least one edit, or no device of the file resolves",
        ),
        f"{DRIVER}-claim_u1.json": ("u1", ""),
        f"{DRIVER}-claim_u2.json": ("u2", "is no JSON"),
        "good.yaml": (None, ""),
        "tab.yaml": (None, "is no YAML"),
    }


def test_looking_where_nothing_is(tmp_path):
    """Nothing is raised."""
    seen = cdi.look(DRIVER, tmp_path / "cdi", tmp_path / "plugin", tmp_path)
    assert trouble(cdi.judge(seen)) == [f"failure cdi directory: {tmp_path / 'cdi'} is not there"]


BOMB = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in pairwise("abcdefghijklmnopqrstu"))


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("x.yaml", "a: !!float ''", "is no YAML"),
        ("x.yaml", "a: !!timestamp x", "is no YAML"),
        ("x.yaml", f"{BOMB}kind: *u\n", "has YAML aliases, which are not read"),
        ("x.json", " " * (cdi.READ_MAX + 1), "has 5 MiB: it was not read"),
    ],
)
def test_files_that_are_made_to_break_their_readers(node, name, content, problem):
    """The other findings are told all the same, at once."""
    node.registry.parent.joinpath("cdi").mkdir(exist_ok=True)
    (node.registry.parent / "cdi" / name).write_text(content)
    seen = cdi.look(DRIVER, node.registry.parent / "cdi", node.registry.parent / "plug", Path("/proc"))
    assert seen.files == (CdiFile(name, None, problem),)


def test_a_fifo_is_not_waited_for(node):
    """No runtime reads one."""
    place = node.registry.parent / "cdi"
    place.mkdir(exist_ok=True)
    os.mkfifo(place / "x.json")
    end = os.open(place / "x.json", os.O_RDWR)  # so that a reader would wait, and a test that fails ends
    os.write(end, b"{")
    os.set_blocking(end, False)
    found = cdi.look(DRIVER, place, place, Path("/proc")).files
    os.close(end)
    assert found == (CdiFile("x.json", None, "not a regular file"),)
