"""Starts, finds and ends the processes of one cluster, also those that an earlier process of ours started.

Every process carries the cluster's folder in its environment and hands it on to its children, so that what belongs to a
cluster can be told after a crash too. Containers do not carry it: `tests.cluster.containers` finds those.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.places import ClusterError

MARK = "LANEWISE_TEST_CLUSTER"
PROC = Path("/proc")
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.03


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes of the cluster in `folder`; logs and process ids lie in `logs` and `pids` below it."""

    folder: Path

    @property
    def mark(self) -> str:
        return f"{MARK}={self.folder}"

    def log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Starts `command` in a session of its own and returns its process id; one that still runs is left alone."""
        running = self.running(name)
        if running is not None:
            return running
        log, pid_file = self.log(name), self._pid_file(name)
        for path in (log, pid_file):
            path.parent.mkdir(parents=True, exist_ok=True)
        variables = {"PATH": os.environ.get("PATH", os.defpath), **environment, MARK: str(self.folder)}
        files = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        pid = os.posix_spawnp(command[0], list(command), variables, file_actions=files, setsid=True)
        pid_file.write_text(f"{pid} {_birth(pid)}")
        return pid

    def running(self, name: str) -> int | None:
        """The process id of `name` while it runs: a number that another program got meanwhile does not count."""
        try:
            pid, birth = map(int, self._pid_file(name).read_text().split())
        except (FileNotFoundError, ValueError):
            return None
        return pid if _birth(pid) == birth else None

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM, seconds: float = 10.0) -> None:
        """Ends `name`, the hard way when it still runs after `seconds`."""
        pid = self.running(name)
        if pid is not None:
            end([pid], how, seconds)
        self._pid_file(name).unlink(missing_ok=True)

    def living(self) -> list[int]:
        """All processes of this cluster, whoever started them."""
        named = (self.running(entry.name) for entry in (self.folder / "pids").glob("*"))
        marked = {pid for pid in _all_pids() if self._is_marked(pid)} - {os.getpid()}
        # by name as well: in the middle of an exec a process seems to have no environment
        return sorted(marked | {pid for pid in named if pid is not None})

    def await_that(self, what: str, answered: Callable[[], bool], name: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Returns when `answered` does; ClusterError with the end of the log when `name` ends or time runs out first."""
        deadline = time.monotonic() + seconds
        while not answered():
            if self.running(name) is None:
                raise ClusterError(
                    f"{name} ended before {what}; the end of {self.log(name)}:\n{self._last_words(name)}"
                )
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"no sign of {what} after {seconds:.0f} s; the end of {self.log(name)}:\n{self._last_words(name)}"
                )
            time.sleep(POLL_SECONDS)

    def _pid_file(self, name: str) -> Path:
        return self.folder / "pids" / name

    def _last_words(self, name: str) -> str:
        return "\n".join(self.log(name).read_text(errors="replace").splitlines()[-8:])

    def _is_marked(self, pid: int) -> bool:
        try:
            environment = (PROC / str(pid) / "environ").read_bytes()
        except OSError:  # gone, or not ours to read
            return False
        return self.mark.encode() in environment.split(b"\0")  # a zombie's environment is empty


def end(pids: Sequence[int], how: signal.Signals, seconds: float) -> None:
    """Signals the processes and waits until all are gone; SIGKILL for those that stay longer than `seconds`."""
    watched: dict[int, int] = {}
    for pid in pids:
        try:
            watched[os.pidfd_open(pid)] = pid
        except ProcessLookupError:
            continue
    try:
        for attempt in (how, signal.SIGKILL):
            for descriptor in watched:
                _send(descriptor, attempt)
            _await_exits(watched, seconds)
    finally:
        for descriptor in watched:
            os.close(descriptor)


def _await_exits(watched: dict[int, int], seconds: float) -> None:
    """Waits for the processes behind the descriptors, and closes and forgets those that ended."""
    poller = select.poll()
    for descriptor in watched:
        poller.register(descriptor, select.POLLIN)
    deadline = time.monotonic() + seconds
    while watched and (left := deadline - time.monotonic()) > 0:
        for descriptor, _ in poller.poll(left * 1000):
            poller.unregister(descriptor)
            _reap(watched.pop(descriptor))
            os.close(descriptor)


def _send(descriptor: int, how: signal.Signals) -> None:
    try:
        signal.pidfd_send_signal(descriptor, how)
    except ProcessLookupError:
        return


def _reap(pid: int) -> None:
    """Collects the process if it is our child; init or a subreaper does it for all others."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def _birth(pid: int) -> int | None:
    """When a living process started, in clock ticks since boot: with the id this names it for good."""
    try:
        stat = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()  # the program's name before it may hold anything
    return None if state in "ZX" else int(fields[18])


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]
