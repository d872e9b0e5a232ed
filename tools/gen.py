"""Rewrites what is generated from other files of this repository, or says whether that is stale.

    python tools/gen.py          writes
    python tools/gen.py --check  writes nothing; exit code 1 when something is stale

What joins later is one more entry in GENERATORS.
"""

import argparse
import contextlib
import difflib
import importlib.metadata
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PROTOC_VERSION = "1.76.0"
"""Of grpcio-tools. Generated modules refuse a protobuf runtime older than their generator, so an old one is used on purpose."""

_SUMMARY_LINES = 20


@dataclass(frozen=True)
class Generator:
    """One family of generated files."""

    name: str
    generate: Callable[[Path], Mapping[Path, bytes]]
    """Repository root → content by path relative to it. Same input, same bytes. Writes nothing there."""
    owned: Callable[[Path], frozenset[Path]]
    """Repository root → the files there now that only this generator makes, so that those without a source are found."""


class Unusable(Exception):  # noqa: N818  # says what the tools are, like api.refusals.Refused
    """The tools at hand cannot generate what is committed."""


def generate_protos(root: Path) -> Mapping[Path, bytes]:
    """`*_pb2.py` and `*_pb2.pyi` beside each .proto file. No `*_pb2_grpc.py`: its few lines are written by hand, typed."""
    found = importlib.metadata.version("grpcio-tools")
    if found != PROTOC_VERSION:
        raise Unusable(
            f"grpcio-tools {found} is installed, {PROTOC_VERSION} is needed: pip install -r requirements/dev.txt"
        )
    sources = sorted(path.relative_to(root).as_posix() for path in root.glob("proto/**/*.proto"))
    with tempfile.TemporaryDirectory(prefix="lanewise-gen-") as scratch:
        bin_dir = Path(sys.executable).parent
        command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={root}", f"--python_out={scratch}"]
        command += [f"--plugin=protoc-gen-mypy={bin_dir / 'protoc-gen-mypy'}", f"--mypy_out=quiet:{scratch}", *sources]
        # PYTHONPATH could bring in another protobuf than the one that is locked.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode != 0:
            raise Unusable(f"protoc: {done.stderr.strip()}")
        out = Path(scratch)
        return {path.relative_to(out): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


def owned_protos(root: Path) -> frozenset[Path]:
    """The generated modules that are there."""
    return frozenset(
        path.relative_to(root) for path in root.glob("proto/**/*_pb2*.py*") if path.suffix in {".py", ".pyi"}
    )


def generate_docs(root: Path) -> Mapping[Path, bytes]:
    """The pages with blocks that the code fills in; see `tools/docs.py`."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from tools import docs

    try:
        return docs.pages(root)
    except docs.UnknownBlock as unknown:
        raise Unusable(str(unknown)) from unknown


GENERATORS: tuple[Generator, ...] = (
    Generator("proto", generate_protos, owned_protos),
    Generator("docs", generate_docs, lambda _: frozenset()),  # a page is written by people; only its blocks are ours
)


def stale(root: Path, generators: tuple[Generator, ...] = GENERATORS) -> dict[Path, tuple[bytes | None, bytes | None]]:
    """Path relative to `root` → (content there, content it should have); None where there is, or should be, no file."""
    differing: dict[Path, tuple[bytes | None, bytes | None]] = {}
    for generator in generators:
        wanted = generator.generate(root)
        for path in sorted(generator.owned(root) | wanted.keys()):
            there = (root / path).read_bytes() if (root / path).is_file() else None
            if there != wanted.get(path):
                differing[path] = (there, wanted.get(path))
    return differing


def summary(path: Path, there: bytes | None, wanted: bytes | None) -> str:
    """What is stale about one file: a sentence, and the first lines of the difference."""
    if there is None:
        return f"{path}: missing"
    if wanted is None:
        return f"{path}: generated from nothing"
    before, after = (content.decode(errors="replace").splitlines() for content in (there, wanted))
    lines = list(difflib.unified_diff(before, after, "committed", "generated", lineterm="", n=0))
    more = [f"  ... {len(lines) - _SUMMARY_LINES} more lines"] if len(lines) > _SUMMARY_LINES else []
    return "\n".join([f"{path}: stale", *(f"  {line[:160]}" for line in lines[:_SUMMARY_LINES]), *more])


def write(root: Path, differing: Mapping[Path, tuple[bytes | None, bytes | None]]) -> None:
    """Make the tree what it should be."""
    for path, (_, wanted) in differing.items():
        if wanted is None:
            with contextlib.suppress(FileNotFoundError):
                (root / path).unlink()
        else:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(wanted)


def main(arguments: list[str], root: Path = ROOT, out: io.TextIOBase | None = None) -> int:
    """The exit code: 0 done or nothing stale, 1 stale, 2 the tools are not the right ones."""
    parser = argparse.ArgumentParser(prog="tools/gen.py", description="Rewrite generated files.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when something is stale")
    options = parser.parse_args(arguments)
    stream = out or sys.stdout
    try:
        differing = stale(root)
    except Unusable as why:
        print(f"gen: {why}", file=sys.stderr)
        return 2
    if not options.check:
        write(root, differing)
        for path in differing:
            print(f"wrote {path}" if differing[path][1] is not None else f"removed {path}", file=stream)
        return 0
    for path, (there, wanted) in differing.items():
        print(summary(path, there, wanted), file=stream)
    if differing:
        print("run make gen", file=stream)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
