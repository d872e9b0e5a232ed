"""The bench's own arithmetic: percentiles, targets, tables, and what strace saw."""

import json

import pytest

from tests.bench.docs import BEGIN, END, filled
from tests.bench.figures import Target, percentile, report, summary, sums, table, targets, unsynced

RESULT = {
    "one by one": {"prepare, 1 held": summary([2.0, 3.0]), "prepare, 200 held": summary([2.1, 3.0])},
    "floors of prepare": summary([2.0, 2.0]),
    "8 at once": {"prepare": summary([19.0, 21.0])},
    "start": {"first slice, s": 0.5},
    "memory": {"plugin, idle, MiB": 52.0, "plugin, more after claims, MiB": 2.0},
    "cpu": {"plugin, s for 1000 calls": 1.5},
    "durable writes": {"records written or removed": 7, "not synced": 0},
    "publishing": [{"nodes": 10, "new": 10, "slice writes": 10}],
    "nothing changes": {"writes an hour": 0.0},
    "machine": {"kernel": "6.1"},
    "code": {"commit": "abc"},
}


def test_percentile_is_a_value_that_was_measured():
    """Nearest rank: of a hundred values the 99th, of a few the largest."""
    hundred = [float(number) for number in range(100, 0, -1)]
    assert [percentile(hundred, share) for share in (0.5, 0.9, 0.99, 1.0)] == [50, 90, 99, 100]
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([3.0, 1.0], 0.99) == 3.0
    assert summary([1.0, 2.0, 3.0, 4.0]) == {"n": 4, "p50": 2.0, "p90": 4.0, "p99": 4.0, "max": 4.0}
    with pytest.raises(ValueError, match="nothing was measured"):
        percentile([], 0.5)


def test_floors_are_summed_turn_by_turn():
    """A bad moment counts once: the p99 of the sum is not the sum of the p99s."""
    samples = {"echo": [1.0, 1.0, 9.0], "get": [2.0, 8.0, 2.0], "other": [100.0, 100.0, 100.0]}
    assert sums(samples, ("echo", "get")) == [3.0, 9.0, 11.0]
    with pytest.raises(ValueError, match="shorter"):
        sums({"echo": [1.0], "get": [1.0, 2.0]}, ("get", "echo"))


def test_each_target_is_met_or_not():
    """At the limit is met; the crowd's p99 is over."""
    assert [(target.found, target.met) for target in targets(RESULT)] == [
        (1.0, True),
        (1.5, True),
        (1.05, True),
        (21.0, False),
        (0.5, True),
        (52.0, True),
        (2.0, True),
        (0, True),
        (0.0, True),
    ]


def test_what_was_not_measured_is_never_met():
    """A part left out is said, for every target."""
    assert {target.met for target in targets({})} == {None}
    assert {target.row[3] for target in targets({})} == {"not measured"}
    assert Target("a", 1.0, 0.0).row == ("a", "≤ 1", "0", "yes")


def test_table_can_be_read_as_it_is():
    """Columns as wide as their widest cell."""
    assert table(("what", "n"), [("a", "1"), ("longer", "22")]) == (
        "| what   | n  |\n| ------ | -- |\n| a      | 1  |\n| longer | 22 |"
    )


def test_report_has_every_part_that_was_measured():
    """From the document as it is read back from its file, in whole."""
    text = report(json.loads(json.dumps(RESULT)))
    assert "| prepare p50, against the sum of its floors | ≤ 1.2x | 1x | yes |" in " ".join(text.split())
    for title in (
        "Calls one by one",
        "Eight callers",
        "Publishing",
        "Start",
        "Memory",
        "CPU",
        "Durable",
        "While nothing",
    ):
        assert f"\n{title}" in text
    assert "Publishing" not in report({})


TRACE = """\
9 fsync(5</s/claims/u.json.1a.tmp>) = 0
9 rename("/s/claims/u.json.1a.tmp", "/s/claims/u.json") = 0
9 fsync(5</s/claims>) = 0
9 unlink("/s/claims/u.json") = 0
9 fsync(5</s/claims>)               = 0
9 rename("/s/released/u.json.2b.tmp", "/s/released/u.json") = 0
9 unlink("/s/claims/none") = -1 ENOENT (No such file or directory)
"""


def test_durable_steps_are_synced_file_and_folder():
    """One write and one removal; what happens in other folders, or did not happen, is none."""
    assert unsynced(TRACE.splitlines(), "/s/claims") == (2, [])


@pytest.mark.parametrize(
    ("missing", "fault"),
    [(0, "/s/claims/u.json: the file"), (2, None), (4, "/s/claims/u.json: its folder")],
)
def test_a_missing_fsync_is_found(missing, fault):
    """Each of them; that of the folder may be done by a later one."""
    lines = TRACE.splitlines()
    del lines[missing]
    assert unsynced(lines, "/s/claims") == (2, [fault] if fault else [])


def test_figures_stand_between_the_marks():
    """All else of the page stays; a page without marks is no page of ours."""
    page = f"# Title\n{BEGIN}\nold\n{END}\nrest\n"
    written = filled(page, RESULT)
    assert written.startswith(f"# Title\n{BEGIN}\n")
    assert written.endswith(f"{END}\nrest\n")
    assert "old" not in written
    assert filled(written, RESULT) == written
    with pytest.raises(ValueError, match="no <!-- bench: begin"):
        filled("# Title\n", RESULT)
