"""The edge of every program: a refusal is told in a sentence, never as a traceback."""

import sys
from collections.abc import Callable

from api.refusals import Reason, Refused, Several

BAD_INPUT = 2
"""Exit code of a program that was told something it cannot use; argparse's own."""


def run(main: Callable[[], int]) -> int:
    """The exit code of `main`. Refused becomes one line on stderr for each reason, and the exit code 2."""
    try:
        return main()
    except Refused as refused:
        for reason in _each(refused.reason):
            print(f"error: {reason.what} ({reason.remedy})", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        return 130


def _each(reason: Reason) -> tuple[Reason, ...]:
    return reason.reasons if isinstance(reason, Several) else (reason,)
