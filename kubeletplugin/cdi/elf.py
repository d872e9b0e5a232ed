"""The name under which a shared library is looked for: DT_SONAME of an ELF64 file.

`libcuda.so.580.105.08` is loaded as `libcuda.so.1`, and only the file itself says so. Layouts: elf(5).
"""

import struct
from pathlib import Path
from typing import BinaryIO

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")

_LOAD, _DYNAMIC = 1, 2
_DT_NULL, _DT_STRTAB, _DT_SONAME = 0, 5, 14

_SEGMENTS_MAX = 1024
_DYNAMIC_MAX_BYTES = 1 << 20
_NAME_MAX_BYTES = 256


def read_soname(path: Path) -> str | None:
    """The library's SONAME, or None: not there, not readable, no 64-bit little-endian ELF, none in it, or garbage.

    Reads a few hundred bytes, however large the file.
    """
    try:
        with path.open("rb") as file:
            return _soname(file)
    except (OSError, ValueError, struct.error, OverflowError):
        return None


def _soname(file: BinaryIO) -> str | None:
    header = _HEADER.unpack(file.read(_HEADER.size))
    identity, segments_at, segment_size, segment_count = header[0], header[5], header[9], header[10]
    if identity[:6] != b"\x7fELF\x02\x01" or segment_size != _SEGMENT.size or segment_count > _SEGMENTS_MAX:
        return None
    segments = list(_SEGMENT.iter_unpack(_at(file, segments_at, segment_size * segment_count)))
    loaded = [(address, offset, size) for kind, _, offset, address, _, size, _, _ in segments if kind == _LOAD]
    for kind, _, offset, _, _, size, _, _ in segments:
        if kind == _DYNAMIC and size <= _DYNAMIC_MAX_BYTES:
            return _name(file, _at(file, offset, size - size % _ENTRY.size), loaded)
    return None


def _name(file: BinaryIO, dynamic: bytes, loaded: list[tuple[int, int, int]]) -> str | None:
    entries: dict[int, int] = {}
    for tag, value in _ENTRY.iter_unpack(dynamic):
        if tag == _DT_NULL:
            break
        entries[tag] = value
    if _DT_SONAME not in entries or _DT_STRTAB not in entries:
        return None
    strings = entries[_DT_STRTAB]  # an address in memory; the segment that holds it says where in the file
    for address, offset, size in loaded:
        if address <= strings < address + size:
            file.seek(offset + strings - address + entries[_DT_SONAME])
            name, end, _ = file.read(_NAME_MAX_BYTES).partition(b"\0")
            text = name.decode("ascii")
            return text if end and text and "/" not in text and text not in {".", ".."} and text.isprintable() else None
    return None


def _at(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    content = file.read(size)
    if len(content) != size:
        raise ValueError("cut off")
    return content
