"""What the measurements amount to: percentiles, and each target with whether it was met. No measuring here."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FLOORS_OF_PREPARE = ("echo", "get", "durable write", "CDI write")
"""What no prepare can do without: the call, the claim as it is now, a record that survives a power cut, and a CDI file."""
FLOORS_OF_UNPREPARE = ("echo", "durable write")


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest of the values that at least this share of them does not exceed (nearest rank). ValueError for none."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("nothing was measured")
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def summary(values: Sequence[float]) -> dict[str, float]:
    """Count, p50, p90, p99 and the largest, rounded to microseconds where the values are milliseconds."""
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {"n": len(values), **{name: round(percentile(values, share), 3) for name, share in shares.items()}}


def sums(samples: Mapping[str, Sequence[float]], names: Iterable[str]) -> list[float]:
    """The floors of one turn together, turn by turn: a bad moment of the machine is bad for all that was done in it."""
    return [sum(turn) for turn in zip(*(samples[name] for name in names), strict=True)]


@dataclass(frozen=True, slots=True)
class Target:
    """One thing that is promised, and what was found."""

    what: str
    limit: float
    found: float | None
    """None where it was not measured."""
    unit: str = ""

    @property
    def met(self) -> bool | None:
        return None if self.found is None else self.found <= self.limit

    @property
    def row(self) -> tuple[str, str, str, str]:
        met = {True: "yes", False: "no", None: "not measured"}[self.met]
        found = "-" if self.found is None else _text(self.found, self.unit)
        return self.what, f"≤ {_text(self.limit, self.unit)}", found, met


def targets(result: Mapping[str, Any]) -> tuple[Target, ...]:
    """All targets, by the document that the bench writes."""
    few, many = _calls(result, "prepare, 1 held"), _calls(result, "prepare, 200 held")
    floor = result.get("floors of prepare") or {}
    crowd = (result.get("8 at once") or {}).get("prepare") or {}
    start, memory = result.get("start") or {}, result.get("memory") or {}
    durable, quiet = result.get("durable writes") or {}, result.get("nothing changes") or {}
    return (
        Target("prepare p50, against the sum of its floors", 1.2, _ratio(few.get("p50"), floor.get("p50")), "x"),
        Target("prepare p99, against the sum of its floors", 2.0, _ratio(few.get("p99"), floor.get("p99")), "x"),
        Target("prepare p50 with 200 claims held, against 1", 1.1, _ratio(many.get("p50"), few.get("p50")), "x"),
        Target("prepare p99 with 8 pods at once", 20.0, crowd.get("p99"), "ms"),
        Target("exec to first ResourceSlice, median", 0.6, start.get("first slice, s"), "s"),
        Target("plugin's memory, idle", 60.0, memory.get("plugin, idle, MiB"), "MiB"),
        Target("plugin's memory, more after 1000 claims", 2.0, memory.get("plugin, more after claims, MiB"), "MiB"),
        Target("durable writes without fsync of file and directory", 0, durable.get("not synced")),
        Target("slice and inventory writes an hour when nothing changes", 0, quiet.get("writes an hour")),
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown that can be read as it is."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |" for line in lines
    )


def report(result: Mapping[str, Any]) -> str:
    """Everything that was measured, as Markdown."""
    parts = [table(("target", "limit", "found", "met"), (target.row for target in targets(result)))]
    for title, key in (
        ("Calls one by one, in turns with their floors (ms)", "one by one"),
        ("Eight callers at once (ms)", "8 at once"),
    ):
        if result.get(key):
            columns = ("n", "p50", "p90", "p99", "max")
            rows = ((name, *(_number(figures[column]) for column in columns)) for name, figures in result[key].items())
            parts.append(f"{title}:\n\n{table(('what', *columns), rows)}")
    if result.get("publishing"):
        rows = (tuple(_number(row[column]) for column in row) for row in result["publishing"])
        parts.append(f"Publishing, nodes of 8 GPUs:\n\n{table(tuple(result['publishing'][0]), rows)}")
    for title, key in (
        ("Start", "start"),
        ("Memory", "memory"),
        ("CPU", "cpu"),
        ("Durable writes of three claims prepared and released, by strace", "durable writes"),
        ("While nothing changes", "nothing changes"),
    ):
        if result.get(key):
            plain = ((name, _number(value)) for name, value in result[key].items())
            parts.append(f"{title}:\n\n{table(('what', 'found'), plain)}")
    return "\n\n".join(parts) + "\n"


def unsynced(trace: Iterable[str], folder: str) -> tuple[int, list[str]]:
    """How many durable steps `strace -f -y` saw in a folder, and those of them that nothing made durable.

    A rename into it wants an fsync of the file before and of the folder after; a removal wants the latter.
    """
    steps = 0
    faults: list[str] = []
    synced: set[str] = set()
    open_ends: list[str] = []
    for line in trace:
        for path in _SYNC.findall(line):
            synced.add(path)
            if path == folder:
                open_ends.clear()
        for old, new in _RENAME.findall(line):
            if new.rpartition("/")[0] == folder:
                steps += 1
                open_ends.append(f"{new}: its folder")
                if old not in synced:
                    faults.append(f"{new}: the file")
        for path in _UNLINK.findall(line):
            if path.rpartition("/")[0] == folder:
                steps += 1
                open_ends.append(f"{path}: its folder")
    return steps, faults + open_ends


_SYNC = re.compile(r"f(?:data)?sync\(\d+<([^>]+)>\)? *(?:= 0|<unfinished)")
_RENAME = re.compile(r'rename(?:at2?)?\((?:[^",]+, )?"([^"]+)", (?:[^",]+, )?"([^"]+)".*= 0')
_UNLINK = re.compile(r'unlink(?:at)?\((?:[^",]+, )?"([^"]+)".*= 0')


def _calls(result: Mapping[str, Any], name: str) -> Mapping[str, float]:
    found: Mapping[str, float] = (result.get("one by one") or {}).get(name) or {}
    return found


def _ratio(value: float | None, floor: float | None) -> float | None:
    return None if value is None or not floor else value / floor


def _text(value: float, unit: str) -> str:
    number = f"{value:.2f}".rstrip("0").rstrip(".")
    return f"{number}{unit}" if unit in {"", "x"} else f"{number} {unit}"


def _number(value: Any) -> str:
    return _text(value, "") if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
