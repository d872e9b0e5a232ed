"""JSON for reading: as few lines as fit, and of long lists only the beginning."""

import json
from collections.abc import Callable
from typing import Any

WIDTH = 108
LIST_MAX = 4


def abridged(value: Any, *, shorten: Callable[[str], str] = str, room: int = WIDTH) -> list[str]:
    """The lines of a JSON value, each of at most `room` characters where that can be.

    `…` stands for what is left out of a list, with its number. `shorten` is applied to all text.
    """
    whole = shorten(json.dumps(value, ensure_ascii=False))
    if len(whole) <= room or not isinstance(value, dict | list) or not value:
        return [whole]
    if isinstance(value, dict) and all(_is_plain(entry) for entry in value.values()):
        pairs = [shorten(f"{json.dumps(key)}: {json.dumps(entry, ensure_ascii=False)}") for key, entry in value.items()]
        if max(map(len, pairs)) + 2 <= room:
            return _filled(pairs, room)
    if isinstance(value, dict):
        entries = [(f"{json.dumps(key)}: ", entry) for key, entry in value.items()]
    else:
        entries = [("", entry) for entry in value[:LIST_MAX]]
    lines = ["{" if isinstance(value, dict) else "["]
    for number, (key, entry) in enumerate(entries, 1):
        # Two for the indent, one for a comma.
        inner = abridged(entry, shorten=shorten, room=room - 3)
        if len(key + inner[0]) > room - 3:
            inner = abridged(entry, shorten=shorten, room=room - 3 - len(key))
        inner[0] = key + inner[0]
        inner[-1] += "," if number < len(value) else ""
        lines += [f"  {line}" for line in inner]
    if left_out := len(value) - len(entries):
        lines.append(f"  … and {left_out} more")
    return [*lines, "}" if isinstance(value, dict) else "]"]


def _filled(entries: list[str], room: int) -> list[str]:
    """An object of plain values, as many on a line as fit."""
    lines = ["{" + entries[0]]
    for entry in entries[1:]:
        lines[-1] += ","
        # One for the comma, or the brace, behind it.
        if len(lines[-1]) + 1 + len(entry) + 1 <= room:
            lines[-1] += f" {entry}"
        else:
            lines.append(f" {entry}")
    lines[-1] += "}"
    return lines


def _is_plain(value: Any) -> bool:
    """Whether it holds nothing that holds something."""
    return not isinstance(value, dict) and not (
        isinstance(value, list) and any(isinstance(e, dict | list) for e in value)
    )
