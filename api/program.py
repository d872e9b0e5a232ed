"""The edge of every program: a refusal is told in a sentence, never as a traceback."""

import errno
import io
import os
import select
import sys
from collections.abc import Callable
from typing import TextIO

from api.refusals import Reason, Refused, Several

BAD_INPUT = 2
"""Exit code of a program that was told something it cannot use; argparse's own."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NOBODY_READS = 141
"""Exit code when the reader of our output has gone (`| head`): 128 + SIGPIPE, as other programs have it."""


def run(main: Callable[[], int]) -> int:
    """The exit code of `main`. Refused becomes one line on stderr for each reason, and the exit code 2. Output that
    nobody reads any more ends the program without a word."""
    _prepare_stdout()
    try:
        code = main()
        sys.stdout.flush()  # what is still to be written fails here, where it can be answered, and not at the very end
        return code
    except Refused as refused:
        for reason in _each(refused.reason):
            print(f"error: {reason.what} ({reason.remedy})", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        if not _is_unread(sys.stdout):
            raise
        _discard(sys.stdout)
        return NOBODY_READS
    except OSError as error:
        if error.errno not in _NO_ROOM or error.filename is not None:
            raise
        print(f"error: stdout: {error.strerror}", file=sys.stderr)
        _discard(sys.stdout)
        return 1


def _prepare_stdout() -> None:
    """Make it take every text: what its encoding lacks is escaped, and where there is none it goes nowhere."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123  # for as long as the process lives
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _is_unread(stream: TextIO) -> bool:
    """Whether its reader has gone: the kernel then reports an error on our end of the pipe, asked or not."""
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def _discard(stream: TextIO) -> None:
    """Let the interpreter's last flush of the stream end nowhere, not in another error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _each(reason: Reason) -> tuple[Reason, ...]:
    return reason.reasons if isinstance(reason, Several) else (reason,)
