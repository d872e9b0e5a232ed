"""Reading a library's name out of it."""

import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubeletplugin.cdi.elf import read_soname
from tests.support.driver_root import elf
from tests.support.properties import FEW


def written(path: Path, content: bytes) -> Path:
    (path / "lib.so").write_bytes(content)
    return path / "lib.so"


@pytest.mark.parametrize("address", [0, 0x1000, 0x7F0000000000])
def test_soname_is_read(tmp_path: Path, address: int):
    """Wherever the library would be loaded."""
    assert read_soname(written(tmp_path, elf("libcuda.so.1", address=address))) == "libcuda.so.1"


def test_library_of_this_machine_is_read():
    """A real linker wrote this one."""
    paths = [
        path for triplet in ("x86_64", "aarch64") for path in Path(f"/usr/lib/{triplet}-linux-gnu").glob("libc.so.6")
    ]
    if not paths:
        pytest.skip("no libc.so.6 in a Debian directory here")
    assert read_soname(paths[0]) == "libc.so.6"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"#!/bin/sh\n",
        elf("libx.so.1")[:60],
        elf("libx.so.1")[:100],
        elf("libx.so.1")[:-20],
        elf(None),
        elf(""),
        elf("../../etc/passwd"),
        elf("x" * 300),
        b"\x7fELF\x01" + elf("libx.so.1")[5:],
        elf("libx.so.1")[:54] + struct.pack("<HH", 56, 65535) + elf("libx.so.1")[58:],
    ],
    ids=["empty", "script", "header cut", "segments cut", "dynamic cut", "no name", "empty name", "path", "long", "32 bit",
         "many segments"],
)  # fmt: skip
def test_no_soname_is_none(tmp_path: Path, content: bytes):
    """No error: a library without one is mounted under its own name only."""
    assert read_soname(written(tmp_path, content)) is None


def test_what_is_no_file_is_none(tmp_path: Path):
    """Missing, and a directory of that name."""
    assert read_soname(tmp_path / "missing") is None
    assert read_soname(tmp_path) is None


@settings(FEW, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(elf("libx.so.1")) - 1), st.binary(min_size=1, max_size=8))
def test_damaged_library_raises_nothing(tmp_path: Path, at: int, damage: bytes):
    """Any bytes overwritten anywhere."""
    content = elf("libx.so.1")
    read_soname(written(tmp_path, content[:at] + damage + content[at + len(damage) :]))
