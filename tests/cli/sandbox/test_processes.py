"""Programs that run beside us, and none that outlives us."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from cli.sandbox import processes
from cli.sandbox.processes import start, stop

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
DEAF = [
    sys.executable,
    "-c",
    (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.fork(); "
        "print('up', flush=True); time.sleep(60)"
    ),
]


def await_up(log: Path, count: int = 1) -> None:
    """The program has said so."""
    with subprocess.Popen(["tail", "-n", "+1", "-f", str(log)], stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        for _ in range(count):
            assert tail.stdout.readline() == "up\n"
        tail.terminate()


def ended(pidfd: int) -> bool:
    """Within 20 s."""
    return bool(select.select([pidfd], [], [], 20)[0])


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_what_a_program_says_is_in_its_log(tmp_path: Path) -> None:
    """Also its last words, and how it ended."""
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    program = start("x", [sys.executable, "-u", "-c", code], {}, tmp_path / "log")
    assert program.process.wait(20) == 3
    assert program.ended == 3
    assert program.last_words(2) == ("out", "err")
    assert program.last_words(1) == ("err",)


def test_stopped_programs_are_gone(tmp_path: Path) -> None:
    """By SIGTERM; again does no harm."""
    program = start("x", SLEEP, {}, tmp_path / "log")
    await_up(program.log)
    assert program.ended is None
    stop([program])
    assert program.ended == -signal.SIGTERM
    stop([program])


def test_a_program_that_will_not_end_is_killed_with_its_children(tmp_path: Path, monkeypatch) -> None:
    """Its whole group."""
    monkeypatch.setattr(processes, "PATIENCE_SECONDS", 0.1)
    program = start("x", DEAF, {}, tmp_path / "log")
    await_up(program.log, 2)
    group = program.process.pid
    members = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and alive(int(entry.name)) and os.getpgid(int(entry.name)) == group
    ]
    (child,) = [os.pidfd_open(pid) for pid in members if pid != group]
    stop([program])
    assert program.ended == -signal.SIGKILL
    assert ended(child)
    os.close(child)


def test_programs_die_with_whoever_started_them(tmp_path: Path) -> None:
    """Killed by SIGKILL, it has no time to end them."""
    code = (
        "import sys, time; from pathlib import Path; from cli.sandbox.processes import start; "
        f"p = start('x', {SLEEP!r}, {{}}, Path({str(tmp_path / 'log')!r})); print(p.process.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    await_up(tmp_path / "log")
    pidfd = os.pidfd_open(child)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert ended(pidfd)
    os.close(pidfd)
