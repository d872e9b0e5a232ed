"""Ends whatever belongs to the cluster in a folder: nothing of it is needed for that but the folder."""

import shutil
import signal
from pathlib import Path

from tests.cluster import containers
from tests.cluster.layout import Layout
from tests.cluster.places import ClusterError
from tests.cluster.processes import Processes, end

ATTEMPTS = 3


def wipe(folder: Path) -> None:
    """Ends all of the cluster at once and removes its folder; does nothing where there is no cluster."""
    if Layout(folder).settings.exists():
        end_all(folder, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def end_all(folder: Path, how: signal.Signals) -> None:
    """Ends every process that carries the cluster's mark, and every container; their mounts end with them."""
    processes = Processes(folder)
    for _ in range(ATTEMPTS):  # one may start another while it dies
        end(processes.living(), how, 5.0)
        containers.kill(Layout(folder).host)
    left = processes.living()
    if left:
        raise ClusterError(f"the kernel does not end the processes {left} of the cluster in {folder}; try again")
