"""Where the test cluster keeps what it builds or writes, outside of the checkout."""

import os
from pathlib import Path


class ClusterError(Exception):
    """Why a cluster cannot be built or started: one sentence that names the remedy."""


def cache() -> Path:
    """The folder of everything worth keeping: `$LANEWISE_CACHE`, or `lanewise` in the user's cache folder."""
    chosen = os.environ.get("LANEWISE_CACHE")
    if chosen:
        return Path(chosen).absolute() / "cluster"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).absolute() / "lanewise" / "cluster"


def playground() -> Path:
    """The folder of the one cluster that `make cluster` starts and `make cluster-down` forgets."""
    return cache() / "run"
