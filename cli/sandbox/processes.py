"""Programs that run beside us for a while: each with its log, and none that outlives us."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PATIENCE_SECONDS = 5.0
"""How long programs have to end by themselves."""

_WITH_US = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
"""Ask the kernel to end us with our parent (prctl(2), PR_SET_PDEATHSIG = 1), see that it still lives, become the program.
Not by `preexec_fn`, which may deadlock in a process with threads."""


@dataclass(frozen=True, slots=True)
class Program:
    """A running program, or one that has ended."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def ended(self) -> int | None:
        """Its exit code, negative for the signal that killed it; None while it runs."""
        return self.process.poll()

    def last_words(self, count: int) -> tuple[str, ...]:
        """The end of its log."""
        try:
            return tuple(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-count:])
        except OSError:
            return ()


def start(name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> Program:
    """Start a program in a session of its own, so that a terminal's Ctrl-C reaches us alone. It dies when the calling thread
    does: call this from one that stays."""
    wrapped = [sys.executable, "-I", "-S", "-c", _WITH_US, str(os.getpid()), *command]
    with log.open("wb") as out:
        process = subprocess.Popen(
            wrapped,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Program(name, process, log)


def stop(programs: Iterable[Program]) -> None:
    """SIGTERM to all, SIGKILL to the groups of those that stay; returns when all are gone. Safe to repeat."""
    running = [program.process for program in programs if program.ended is None]
    for process in running:
        process.terminate()
    deadline = time.monotonic() + PATIENCE_SECONDS
    for process in running:
        try:
            process.wait(max(deadline - time.monotonic(), 0.01))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
