"""The committed modules are what the .proto files give, and the check that says so can say no."""

import importlib.util
import io
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def gen():
    spec = importlib.util.spec_from_file_location("lanewise_gen", ROOT / "tools" / "gen.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(tmp_path):
    """The .proto files and what was generated from them, to be spoilt."""
    shutil.copytree(ROOT / "proto", tmp_path / "proto", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_committed_modules_are_not_stale(gen):
    """make gen would change nothing."""
    out = io.StringIO()
    assert gen.main(["--check"], out=out) == 0, out.getvalue()


def test_check_tells_what_is_stale_and_writes_nothing(gen, copy):
    """Changed, missing and left over modules are each named; only a run without --check mends them."""
    changed, missing, extra = (
        copy / "proto" / name for name in ("dra/v1/dra_pb2.pyi", "health/v1/health_pb2.py", "old_pb2.py")
    )
    good = changed.read_bytes()
    changed.write_bytes(good.replace(b"share_id", b"share"))
    missing.unlink()
    extra.write_text("")
    out = io.StringIO()
    assert gen.main(["--check"], copy, out) == 1
    told = out.getvalue()
    assert "proto/dra/v1/dra_pb2.pyi: stale" in told
    assert "proto/health/v1/health_pb2.py: missing" in told
    assert "proto/old_pb2.py: generated from nothing" in told
    assert told.endswith("run make gen\n")
    assert changed.read_bytes() != good
    assert not missing.exists()

    assert gen.main([], copy, io.StringIO()) == 0
    assert changed.read_bytes() == good
    assert missing.exists()
    assert not extra.exists()


def test_other_generators_can_join(gen, tmp_path):
    """What is generated from other sources needs one entry and no other change."""
    mine = gen.Generator("mine", lambda root: {Path("a/b.txt"): b"x\n"}, lambda root: frozenset())
    found = gen.stale(tmp_path, (mine,))
    assert found == {Path("a/b.txt"): (None, b"x\n")}
    gen.write(tmp_path, found)
    assert gen.stale(tmp_path, (mine,)) == {}


def test_another_protoc_is_refused(gen, capsys, monkeypatch):
    """Generated code refuses runtimes older than its generator, so the generator's version is fixed."""
    monkeypatch.setattr(gen, "PROTOC_VERSION", "1.0.0")
    assert gen.main(["--check"]) == 2
    assert "1.0.0 is needed: pip install -r requirements/dev.txt" in capsys.readouterr().err
