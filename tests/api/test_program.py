"""The edge of every program."""

import contextlib
import os
import subprocess
import sys

import pytest

from api.program import run
from api.refusals import BadInput, Refused, Several


def refuse(*reasons: BadInput) -> int:
    raise Refused(reasons[0] if len(reasons) == 1 else Several(reasons))


def test_refusal_is_a_line_for_each_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """Never a traceback; exit code 2."""
    reasons = (BadInput("--port", "'x' is no port", "use a number"), BadInput("file", "is gone", "bring it back"))
    assert run(lambda: refuse(*reasons)) == 2
    assert (
        capsys.readouterr().err
        == "error: --port: 'x' is no port (use a number)\nerror: file: is gone (bring it back)\n"
    )


def test_exit_code_is_mains_own(capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing is said."""
    assert run(lambda: 7) == 7
    assert capsys.readouterr().err == ""


def test_interrupt_is_no_traceback() -> None:
    """128 + SIGINT, as shells expect."""

    def interrupted() -> int:
        raise KeyboardInterrupt

    assert run(interrupted) == 130


def said_to(out: str, text: str, **environment: str) -> tuple[int, bytes, bytes]:
    """Exit code, stdout and stderr of a program that prints `text`, with the shell's redirection `out`."""
    program = f"from api.program import run\nrun_code = run(lambda: print({text!a}) or 3)\nraise SystemExit(run_code)"
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" {out}', sys.executable, program],
        capture_output=True,
        check=False,
        env={**os.environ, **environment},
        timeout=30,
    )
    return done.returncode, done.stdout, done.stderr


def test_what_the_terminal_cannot_show_is_escaped() -> None:
    """Names of any language, and a terminal that knows ASCII."""
    assert said_to("", "é …", PYTHONIOENCODING="ascii") == (3, b"\\xe9 \\u2026\n", b"")
    assert said_to("", "\ud800", PYTHONIOENCODING="utf-8") == (3, b"\\ud800\n", b"")


@pytest.mark.parametrize("size", [1, 100_000])
def test_output_that_finds_no_room_is_one_sentence(size: int) -> None:
    """A full disk behind `>`."""
    assert said_to(">/dev/full", "x" * size) == (1, b"", b"error: stdout: No space left on device\n")


def test_without_stdout_nothing_is_printed() -> None:
    """`>&-`"""
    assert said_to(">&-", "x") == (3, b"", b"")


def piped_into_nobody(program: str) -> tuple[int, str]:
    """Exit code and stderr of a program whose reader goes before it writes."""
    reader, writer = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", f"import sys\nfrom api.program import run\n{program}"],
        stdin=subprocess.PIPE,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(writer)
        os.close(reader)
        said = process.communicate("go\n", timeout=30)[1]
    return process.returncode, said


@pytest.mark.parametrize("size", [1, 1_000_000])
def test_a_reader_that_goes_ends_the_program_quietly(size: int) -> None:
    """`lanewise discover | head`: found while writing, or only when all is flushed at the end."""
    program = f"sys.exit(run(lambda: sys.stdin.readline() and print('x' * {size}) or 0))"
    assert piped_into_nobody(program) == (141, "")


def test_another_pipe_that_breaks_is_no_reader_gone() -> None:
    """A connection, say: that is a mistake of ours, and its traceback is wanted."""

    def broken() -> int:
        raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(BrokenPipeError), open(os.devnull, "w") as sink, contextlib.redirect_stdout(sink):  # noqa: PTH123
        run(broken)
