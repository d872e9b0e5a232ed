"""Finds and ends the containers of one cluster without asking its containerd, which may be dead.

containerd keeps one folder for each running container, and places its processes in the control group `/k8s.io/ID` of
every hierarchy; its IDs are random, so two clusters on one machine never meet there.
"""

import errno
import os
import signal
import time
from pathlib import Path

from tests.cluster.processes import end

CGROUPS = Path("/sys/fs/cgroup")
TASKS = Path("run/containerd/io.containerd.runtime.v2.task/k8s.io")  # below what the namespace shows as /


def groups(host: Path, cgroups: Path = CGROUPS) -> list[Path]:
    """The control groups of the containers that the containerd under `host` started, of cgroup v1, v2 or both."""
    try:
        identifiers = [entry.name for entry in (host / TASKS).iterdir()]
    except FileNotFoundError:
        return []
    bases = [base for pattern in ("k8s.io", "*/k8s.io") for base in cgroups.glob(pattern)]
    return [group for base in bases for name in identifiers if (group := base / name).is_dir()]


def kill(host: Path, seconds: float = 10.0) -> None:
    """Kills every process in the containers, and removes their control groups."""
    found = groups(host)
    deadline = time.monotonic() + seconds
    while (pids := _members(found)) and time.monotonic() < deadline:
        end(pids, signal.SIGKILL, 1.0)
    nested = {below for group in found for below in (group, *group.rglob("*/"))}
    for group in sorted(nested, reverse=True):
        _remove(group, deadline)
    for base in {group.parent for group in found}:  # stays while another cluster has containers
        _remove(base, time.monotonic())


def _members(found: list[Path]) -> list[int]:
    pids: set[int] = set()
    for group in found:
        for listing in group.rglob("cgroup.procs"):
            try:
                pids |= {int(line) for line in listing.read_text().split()}
            except OSError:  # removed meanwhile, or a threaded group, whose parent lists the process
                continue
    return sorted(pids)


def _remove(group: Path, deadline: float) -> None:
    """Removes an empty control group; a dying process may keep it busy for a moment after its end was reported."""
    while True:
        try:
            os.rmdir(group)  # noqa: PTH106 - a control group is removed although it seems to hold files
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.ENOTEMPTY) or time.monotonic() >= deadline:
                return
            time.sleep(0.01)
