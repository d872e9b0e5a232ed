"""Start-up, memory and processor time of our programs, as the kernel counts them."""

import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from api.kube.client import Client
from api.kube.errors import KubeError
from api.kube.paths import SLICES
from cli.sandbox.kubelet import NotRegistered, Registry
from tests.bench.calls import Claims, Served, serving, strace
from tests.bench.figures import unsynced
from tests.bench.place import MACHINE, Place, node, stop
from tests.cluster.lanewise import Part

SETTLE_SECONDS = 10.0
"""Until a program that has started is called idle."""


def memory_mib(part: Part) -> float:
    """Resident memory of the process now (VmRSS)."""
    status = Path(f"/proc/{part.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return round(int(line.split()[1]) / 1024, 1)


def cpu_seconds(part: Part) -> float:
    """Processor time of all its threads so far."""
    threads = Path(f"/proc/{part.pid}/task").glob("*/schedstat")
    return sum(int(path.read_text().split()[0]) for path in threads) / 1e9


class FirstSlice:
    """A watch on the slices of one node that notes when the first comes."""

    def __init__(self, client: Client, node_name: str) -> None:
        self.at: float | None = None
        query = {"fieldSelector": f"spec.nodeName={node_name}"}
        version = client.get(SLICES.path(), {**query, "limit": 1})["metadata"]["resourceVersion"]
        self._watch = client.watch(SLICES.path(), {**query, "resourceVersion": version})
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> float:
        """When it came, by the performance counter; AssertionError when it does not."""
        self._thread.join(seconds)
        assert self.at is not None, f"no slice within {seconds:.0f} s"
        return self.at

    def close(self) -> None:
        self._watch.close()
        self._thread.join(5.0)

    def _look(self) -> None:
        try:
            for kind, _ in self._watch:
                if kind == "ADDED":
                    self.at = time.perf_counter()
                    return
        except KubeError:
            return


def starts(place: Place, client: Client, count: int) -> dict[str, Any]:
    """From the plugin's exec to the first slice at a watcher, the controller at work; the first start is not counted: it
    compiles. The registry is looked at every 2 ms, as the kubelet would be woken by the kernel."""
    slices: list[float] = []
    sockets: list[float] = []
    for number in range(count + 1):
        name = f"start-{number}"
        node(client, name)
        first = FirstSlice(client, name)
        begun = time.perf_counter()
        part = place.start_plugin(name)
        with Registry(place.node_dir(name) / "registry") as kubelet:
            while not _registered(kubelet):
                time.sleep(0.002)
            listening = time.perf_counter() - begun
            taken = first.wait(30.0) - begun
            first.close()
        stop(part)
        if number:
            sockets.append(listening)
            slices.append(taken)
    return {
        "first slice, s": round(statistics.median(slices), 3),
        "slowest of them, s": round(max(slices), 3),
        "registered with the kubelet, s": round(statistics.median(sockets), 3),
        "starts": count,
    }


def memory_and_cpu(place: Place, served: Served, claims: Claims, count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Memory when idle and after so many claims were prepared and released one by one, and what those calls cost."""
    time.sleep(SETTLE_SECONDS)
    idle, begun = memory_mib(served.part), cpu_seconds(served.part)
    for claim in claims.make(served.node, [served.free[number % len(served.free)] for number in range(count)]):
        served.kubelet.prepare(claim)
        served.kubelet.unprepare(claim)
    used, after = cpu_seconds(served.part) - begun, memory_mib(served.part)
    memory = {
        "plugin, idle, MiB": idle,
        f"plugin, after {count} claims, MiB": after,
        "plugin, more after claims, MiB": round(after - idle, 1),
    }
    return memory, {"plugin, s for 1000 calls": round(1000 * used / (2 * count), 2)}


def durable_writes(place: Place, client: Client, claims: Claims, say: Callable[[str], None]) -> dict[str, Any]:
    """What strace sees of the state directory while claims are prepared and released; nothing where there is no strace."""
    if strace() is None:
        say("strace is not here: fsyncs are not counted")
        return {}
    trace = place.cluster.dir / "trace"
    with serving(place, client, claims, "traced", MACHINE, held=1, trace=trace) as served:
        for claim in claims.make(served.node, served.free[:3]):
            served.kubelet.prepare(claim)
            served.kubelet.unprepare(claim)
    lines = trace.read_text(errors="replace").splitlines()
    steps, faults = unsynced(lines, str(place.node_dir("traced") / "p/claims"))
    for fault in faults:
        say(f"not synced: {fault}")
    return {"records written or removed": steps, "not synced": len(faults)}


def settled_memory(part: Part) -> float:
    """Memory some seconds from now."""
    time.sleep(SETTLE_SECONDS)
    return memory_mib(part)


def _registered(kubelet: Registry) -> bool:
    try:
        return bool(kubelet.scan())
    except (NotRegistered, OSError):
        return False


__all__ = ["durable_writes", "memory_and_cpu", "memory_mib", "settled_memory", "starts"]
