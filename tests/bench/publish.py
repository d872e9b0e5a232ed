"""Many nodes on the real API server: what the controller writes until all are published, and what while nothing changes."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from api.inventory import INVENTORY_MANAGER, Instance, Owner, encode_instance, encode_spec, instance_manager
from api.kube.client import Client
from api.kube.errors import KubeError
from api.kube.paths import LEASES, NODE_INVENTORIES, NODES, SLICES
from api.names import lease_name
from api.timestamps import micro_time, utc_now
from tests.bench.growth import cpu_seconds, memory_mib
from tests.bench.place import NAMESPACE, Place
from tests.cluster.lanewise import Part, until
from tests.support.gpus import a_machine

RENEW_SECONDS = 15.0
"""Between two renewals of one node's Lease; the plugin's are 10 s apart, and 40 s are silence."""
RENEWERS = 6
SILENCE_SECONDS = 38.0
"""A Lease that this machine was too busy to renew for longer makes writes of its own: then nothing was measured."""
WRITERS = 3
PATIENCE_SECONDS = 300.0


class Tally:
    """Counts what happens to all objects of a kind, by watching. DELETED, MODIFIED and ADDED are writes that had an effect."""

    def __init__(self, client: Client, path: str) -> None:
        self._client, self._path = client, path
        self.counts: Counter[str] = Counter()
        self._version = client.get(path, {"limit": 1})["metadata"]["resourceVersion"]
        self._over = threading.Event()
        self._watch: Any = None
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        if self._watch is not None:
            self._watch.close()
        self._thread.join(5.0)

    def _look(self) -> None:
        while not self._over.is_set():
            try:
                self._watch = self._client.watch(self._path, {"resourceVersion": self._version})
                for kind, obj in self._watch:
                    self._version = obj["metadata"]["resourceVersion"]
                    self.counts[kind] += kind != "BOOKMARK"
            except KubeError:
                continue


class Fleet:
    """Nodes without kubelets: their objects, and the plugins' marks, written as the plugins would."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._workers = ThreadPoolExecutor(WRITERS)
        self.names: list[str] = []
        self._owners: dict[str, Owner] = {}
        self._renewed: dict[str, float] = {}
        self.longest_silence = 0.0
        """Of any Lease, in seconds, since this was last set to nothing."""
        self._over = threading.Event()
        self._renewers = [
            threading.Thread(target=self._renew_all, args=(part,), daemon=True) for part in range(RENEWERS)
        ]
        for renewer in self._renewers:
            renewer.start()

    def close(self) -> None:
        self._over.set()
        for renewer in self._renewers:
            renewer.join()
        self._workers.shutdown()

    def make(self, count: int) -> list[str]:
        """So many more Node objects."""
        names = [f"fleet-{len(self._owners) + number}" for number in range(count)]
        self._owners |= dict(self._workers.map(self._node, names))
        return names

    def report(self, names: list[str]) -> None:
        """Inventory, Lease and registration of each, as when their plugins start."""
        list(self._workers.map(self._report, names))

    def _node(self, name: str) -> tuple[str, Owner]:
        made = self._client.create(NODES.path(), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        return name, Owner(name, made["metadata"]["uid"])

    def _report(self, name: str) -> None:
        owner, instance = self._owners[name], f"of-{name}"
        lease = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": lease_name(instance), "namespace": NAMESPACE},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": micro_time(utc_now())},
        }
        self._client.create(LEASES.path(NAMESPACE), lease)
        self.names.append(name)  # from now on its Lease is renewed
        path = NODE_INVENTORIES.path(name=name)
        self._client.apply(path, encode_spec(owner, a_machine(8)), field_manager=INVENTORY_MANAGER, force=True)
        entry = encode_instance(name, Instance(instance, registered=True, lease=lease_name(instance)))
        status = NODE_INVENTORIES.path(name=name, subresource="status")
        self._client.apply(status, entry, field_manager=instance_manager(instance), force=True)

    def _renew_all(self, part: int) -> None:
        while not self._over.is_set():
            begun, names = time.monotonic(), self.names[part::RENEWERS]
            for name in names:
                if self._over.is_set():
                    return
                path = LEASES.path(NAMESPACE, lease_name(f"of-{name}"))
                self._client.merge_patch(path, {"spec": {"renewTime": micro_time(utc_now())}})
                now = time.monotonic()
                self.longest_silence = max(self.longest_silence, now - self._renewed.get(name, now))
                self._renewed[name] = now
            self._over.wait(max(0.1, begun + RENEW_SECONDS - time.monotonic()))


def published(
    place: Place, controller: Part, sizes: list[int], window_seconds: float, say: Callable[[str], None]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """One row for each size of the cluster, growing; then what is written in a window in which nothing changes."""
    rows: list[dict[str, Any]] = []
    with place.client(pool_size=16) as client, _closing(Fleet(client)) as fleet:
        slices, inventories = Tally(client, SLICES.path()), Tally(client, NODE_INVENTORIES.path())
        with _closing(slices), _closing(inventories):
            for size in sizes:
                say(f"publishing {size} nodes")
                rows.append(_grown(fleet, controller, slices, inventories, size))
            say(f"watching for {window_seconds:.0f} s that nothing is written")
            time.sleep(2 * RENEW_SECONDS)  # whoever was taken for silent in the rush is heard again
            until("the last writes are over", _still(slices, inventories), PATIENCE_SECONDS)
            fleet.longest_silence = 0.0
            slices.counts.clear()
            inventories.counts.clear()
            begun = cpu_seconds(controller)
            time.sleep(window_seconds)
            written = slices.counts.total() + inventories.counts.total()
            quiet = {
                "nodes": sizes[-1],
                "window, s": window_seconds,
                "slice writes": slices.counts.total(),
                "inventory writes": inventories.counts.total(),
                "longest silence of a Lease, s": round(fleet.longest_silence, 1),
                "writes an hour": written * 3600 / window_seconds if fleet.longest_silence < SILENCE_SECONDS else None,
                "controller's CPU, s an hour": round((cpu_seconds(controller) - begun) * 3600 / window_seconds, 1),
            }
    return rows, quiet


def _grown(fleet: Fleet, controller: Part, slices: Tally, inventories: Tally, size: int) -> dict[str, Any]:
    names = fleet.make(size - len(fleet.names))
    before, inventories_before = Counter(slices.counts), inventories.counts.total()
    cpu, begun = cpu_seconds(controller), time.perf_counter()
    fleet.report(names)
    reported = time.perf_counter() - begun
    until(
        f"{size} nodes are published",
        lambda: slices.counts["ADDED"] - before["ADDED"] >= len(names),
        PATIENCE_SECONDS,
    )
    seconds = time.perf_counter() - begun
    until("the last writes are over", _still(slices, inventories), PATIENCE_SECONDS)
    return {
        "nodes": size,
        "new": len(names),
        "s to report": round(reported, 2),
        "s to publish": round(seconds, 2),
        "slice writes": slices.counts.total() - before.total(),
        # Two of a node's are its plugin's own: the inventory, and that it is registered.
        "condition writes": inventories.counts.total() - inventories_before - 2 * len(names),
        "controller, CPU s": round(cpu_seconds(controller) - cpu, 2),
        "controller, MiB": memory_mib(controller),
    }


def _still(*tallies: Tally) -> Callable[[], bool]:
    """Whether nothing was written for a second."""
    last: list[tuple[int, float]] = [(-1, 0.0)]

    def still() -> bool:
        now, total = time.monotonic(), sum(tally.counts.total() for tally in tallies)
        if total != last[0][0]:
            last[0] = (total, now)
        return now - last[0][1] >= 1.0

    return still


@contextmanager
def _closing(thing: Any) -> Iterator[Any]:
    try:
        yield thing
    finally:
        thing.close()
