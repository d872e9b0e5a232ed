"""Builds the small Go programs through which upstream's own code judges ours.

Each folder here is one Go module that pins what it takes from upstream. With Go files in it, it is a program of ours; with a
single `tool` line in its go.mod, the program is upstream's. What was built is kept outside of the checkout.
"""

import hashlib
import os
import re
import subprocess
import tempfile
from pathlib import Path

from tests.cluster.build import FLAGS, LINKER_FLAGS, go_program, install_from_debian, one_at_a_time
from tests.cluster.places import ClusterError, cache

HERE = Path(__file__).parent
NEED_C = frozenset({"nvidia-cdi-hook", "nvidia-ctk"})
"""Tools that call C libraries; the others are built without a C compiler."""


def build(tool: str) -> Path:
    """The program of the folder `tool`, built when it is not yet; safe beside another builder. ClusterError says why not."""
    folder = HERE / tool
    goal = cache().parent / "upstream" / f"{tool}-{key(folder)}"
    goal.parent.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(goal.with_name(f"{goal.name}.lock")):
        if not goal.is_dir():
            with tempfile.TemporaryDirectory(prefix=f"{goal.name}.", dir=goal.parent) as unfinished:
                _compile(folder, Path(unfinished) / tool)
                Path(unfinished).chmod(0o755)
                Path(unfinished).rename(goal)  # whole or not at all
    return goal / tool


def key(folder: Path) -> str:
    """What the program depends on, as a name: flags, pinned modules and our own sources."""
    digest = hashlib.sha256(repr((FLAGS, LINKER_FLAGS, folder.name in NEED_C)).encode())
    for file in (folder / "go.mod", folder / "go.sum", *sorted(folder.glob("*.go"))):
        digest.update(f"{file.name} {file.stat().st_size}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def package(folder: Path) -> str:
    """What to compile: our sources, or else the package that go.mod names as its tool."""
    if any(folder.glob("*.go")):
        return "."
    named = re.search(r"^tool (\S+)$", (folder / "go.mod").read_text(), re.MULTILINE)
    if named is None:
        raise ClusterError(f"{folder} has neither Go files nor a go.mod with a single `tool` line; restore its files")
    return named[1]


def c_compiler() -> str:
    """The C compiler, installed when there is none; ClusterError says how where that is not possible."""
    install_from_debian({"cc": "gcc libc6-dev"})
    return "cc"


def _compile(folder: Path, output: Path) -> None:
    command = [go_program(), "build", *FLAGS, "-ldflags", LINKER_FLAGS, "-o", str(output), package(folder)]
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": ""}
    if folder.name in NEED_C:
        environment |= {"CGO_ENABLED": "1", "CC": c_compiler(), "CGO_CFLAGS": "-O2 -w"}
    if subprocess.run(command, cwd=folder, env=environment).returncode:
        raise ClusterError(f"Go could not build tests/upstream/{folder.name}; its own words are above")
