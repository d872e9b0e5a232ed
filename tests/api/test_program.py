"""The edge of every program."""

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
