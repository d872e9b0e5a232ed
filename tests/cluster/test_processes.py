"""Processes of a cluster are found again by their mark, ended for certain, and their death is noticed while waiting."""

import signal

import pytest

from tests.cluster.places import ClusterError
from tests.cluster.processes import Processes, end


@pytest.fixture
def processes(tmp_path):
    processes = Processes(tmp_path)
    yield processes
    end(processes.living(), signal.SIGKILL, 5.0)


def test_started_process_is_found_with_its_children_and_ends(processes):
    """A shell and its child carry the mark; both are gone after the end."""
    processes.start("parent", ["sh", "-c", "sleep 100 & echo started; wait"], {})
    processes.await_that("its child", lambda: "started" in processes.log("parent").read_text(), "parent")
    assert processes.running("parent") in processes.living()
    assert len(processes.living()) == 2
    end(processes.living(), signal.SIGTERM, 5.0)
    assert processes.living() == []
    assert processes.running("parent") is None


def test_process_that_ignores_sigterm_is_killed(processes):
    """Nobody's patience is needed beyond the time given."""
    processes.start("deaf", ["sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 100; done"], {})
    processes.await_that("its trap", lambda: "deaf" in processes.log("deaf").read_text(), "deaf")
    processes.stop("deaf", seconds=0.05)
    assert processes.running("deaf") is None


def test_waiting_for_a_process_that_died_says_its_last_words(processes):
    """The end of the log stands in the error, and nobody waits for the deadline."""
    processes.start("short", ["sh", "-c", "echo 'no such flag'; exit 1"], {})
    with pytest.raises(ClusterError, match=r"short ended before an answer(?s:.*)no such flag"):
        processes.await_that("an answer", lambda: False, "short")


def test_process_id_of_another_program_does_not_count(processes):
    """A process id file that a reboot left behind may name anybody."""
    processes.start("short", ["true"], {})
    (processes.folder / "pids" / "short").write_text("1 7")
    assert processes.running("short") is None
