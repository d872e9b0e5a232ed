"""`python -m tests.bench`: everything in one run, each figure beside its floor."""

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench import calls, docs, growth, publish
from tests.bench.figures import FLOORS_OF_PREPARE, FLOORS_OF_UNPREPARE, report, summary, sums
from tests.bench.place import MACHINE, ROOT, Place, a_place, stop
from tests.cluster.places import ClusterError

HELD = 200
PARTS = ("calls", "start", "memory", "publish")


def say(line: str) -> None:
    """Progress, beside the figures."""
    print(f"bench: {line}", file=sys.stderr, flush=True)


def measure(place: Place, result: dict[str, Any], *, quick: bool, parts: frozenset[str]) -> None:
    """Fill the document of one run; what was measured before something breaks off stays in it."""
    result |= {"quick": quick, "machine": machine(), "code": code(place)}
    with place.client(pool_size=8) as client:
        claims = calls.Claims(client)
        try:
            if "calls" in parts:
                _calls(place, client, claims, result, count=60 if quick else 500)
            if "memory" in parts:
                say("memory and processor time")
                count = 100 if quick else 1000
                with calls.serving(place, client, claims, "alone", MACHINE, held=1) as served:
                    result["memory"], result["cpu"] = growth.memory_and_cpu(place, served, claims, count)
                result["durable writes"] = growth.durable_writes(place, client, claims, say)
        finally:
            claims.close()
        if parts & {"start", "publish"}:
            controller = place.start_controller()
            result.setdefault("memory", {})["controller, idle, MiB"] = growth.settled_memory(controller)
            if "start" in parts:
                say("start to first slice")
                result["start"] = growth.starts(place, client, 3 if quick else 7)
            if "publish" in parts:
                sizes = [10, 50] if quick else [10, 100, 1000]
                rows, quiet = publish.published(place, controller, sizes, 15.0 if quick else 60.0, say)
                result["publishing"], result["nothing changes"] = rows, quiet
            stop(controller)


def _calls(place: Place, client: Any, claims: calls.Claims, result: dict[str, Any], *, count: int) -> None:
    say(f"{count} claims one by one, with 1 and with {HELD} held, in turns with the floors")
    many = calls.machine_file(place.cluster.dir / "many.yaml", calls.BUSY_GPUS)
    with (
        calls.serving(place, client, claims, "few", many, held=1) as few,
        calls.serving(place, client, claims, "many", many, held=HELD) as full,
    ):
        calls.one_by_one(place, claims, {"1 held": few, f"{HELD} held": full}, 10)  # connections and caches
        samples = calls.one_by_one(place, claims, {"1 held": few, f"{HELD} held": full}, count)
        say("8 at once")
        calls.at_once(place, claims, few, 16)
        crowds = {1: calls.at_once(place, claims, few, count), HELD: calls.at_once(place, claims, full, count)}
    prepare, unprepare = sums(samples, FLOORS_OF_PREPARE), sums(samples, FLOORS_OF_UNPREPARE)
    one_by_one = {name: summary(values) for name, values in samples.items()}
    result["one by one"] = one_by_one | {
        "sum of the floors of prepare": summary(prepare),
        "sum of the floors of unprepare": summary(unprepare),
    }
    result["floors of prepare"] = summary(prepare)
    result["8 at once"] = {
        name if held == 1 else f"{name}, {held} held": summary(values)
        for held, crowd in crowds.items()
        for name, values in crowd.items()
    }


def machine() -> dict[str, Any]:
    """What it ran on."""
    cpu = [line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "processor": f"{os.cpu_count()} x {cpu[0] if cpu else platform.machine()}",
        "memory, GiB": round(memory / 2**20, 1),
        "kernel": platform.release(),
        "disk": _disk(),
        "python": platform.python_version(),
        "load before": round(os.getloadavg()[0], 2),
    }


def code(place: Place) -> dict[str, Any]:
    """What ran."""
    ended = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return {
        "commit": ended.stdout.strip() or "unknown",
        "kubernetes": place.cluster.get("/version")["gitVersion"],
        "date": datetime.now(UTC).date().isoformat(),
    }


def _disk() -> str:
    """The kind of file system that holds the state, and whether it has a journal: both decide what a new file costs."""
    mounts = [line.split() for line in _lines("/proc/mounts")]
    folder = Path(os.environ.get("TMPDIR", "/tmp")).resolve()
    holding = [mount for mount in mounts if folder.is_relative_to(mount[1])]
    device, _, kind = max(holding, key=lambda mount: len(mount[1]))[:3]
    journal = kind != "ext4" or any(Path("/proc/fs/jbd2").glob(f"{Path(device).name}*"))
    return kind if journal else f"{kind} without a journal"


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def main(arguments: list[str]) -> int:
    """Run; 2 when what it needs is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--quick", action="store_true", help="a tenth of the calls: does it run, not what is it worth")
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part; may be repeated")
    parser.add_argument("--write-docs", action="store_true", help="put the tables into docs/performance.md")
    parser.add_argument("--from-json", type=Path, metavar="FILE", help="measure nothing, take the figures of a run")
    chosen = parser.parse_args(arguments)
    result: dict[str, Any] = {}
    try:
        if chosen.from_json is not None:
            result = json.loads(chosen.from_json.read_text())
        else:
            with a_place(say) as place:
                measure(place, result, quick=chosen.quick, parts=frozenset(chosen.only or PARTS))
    except ClusterError as error:
        print(f"tests.bench: {error}", file=sys.stderr)
        return 2
    finally:
        if chosen.json is not None and result:
            chosen.json.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
        print(report(result), end="")
    if chosen.write_docs:
        docs.write(result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
