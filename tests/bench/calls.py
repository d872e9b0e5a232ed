"""Prepare and unprepare as the kubelet calls them, each beside its floors, in turns: whatever the machine does to the one,
it does to the others a few milliseconds apart.
"""

import http.client
import itertools
import json
import shutil
import signal
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import yaml

from api.kube.client import Client
from api.kube.paths import CLAIMS
from api.names import gpu_device_name, pool_name
from kubeletplugin.discovery import machinefile
from kubeletplugin.disk import LocalDisk
from proto.dra.v1 import dra_pb2
from tests.bench.echo import SERVICE
from tests.bench.place import DRIVER, Place, stop
from tests.bench.place import node as make_node
from tests.cluster.lanewise import Part, until
from tests.cluster.processes import end

Samples = dict[str, list[float]]
"""Milliseconds by what was done."""

BUSY_GPUS = 208
"""A machine with room for 200 held claims and 8 at work. No such machine exists: with whole GPUs alone it is the only way to
hold so many at once, and it does not make anything cheaper."""
NAMESPACE = "bench"
TRACED = "fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat"
OPTIONS = (("grpc.use_local_subchannel_pool", 1),)


@dataclass(frozen=True, slots=True)
class ClaimId:
    """A claim that has been allocated."""

    name: str
    uid: str


def machine_file(path: Path, gpus: int) -> Path:
    """Write a machine of so many GPUs, each below a root port of its own."""
    addresses = [f"0000:{number // 8 + 0x10:02x}:{number % 8:02x}.0" for number in range(gpus)]
    tree = {
        f"pci0000:{bus:02x}": [address for address in addresses if address[5:7] == f"{bus:02x}"]
        for bus in sorted({int(address[5:7], 16) for address in addresses})
    }
    document = {
        "name": "many",
        "driver": {"version": "580.105.08", "cuda": "13.0"},
        "eachGpu": {"product": "NVIDIA H100 80GB HBM3", "memoryMiB": 81559},
        "gpus": [{"pci": address, "numa": 0} for address in addresses],
        "tree": tree,
    }
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def device_names(machine: Path) -> list[str]:
    """The names of a machine file's GPUs."""
    return [gpu_device_name(gpu.place.address) for gpu in machinefile.read(machine, node="any").gpus]


class Claims:
    """Makes claims that are allocated already: what the scheduler would have written, the bench writes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._numbers = itertools.count()
        self._workers = ThreadPoolExecutor(4)

    def close(self) -> None:
        self._workers.shutdown()

    def make(self, node: str, devices: Sequence[str]) -> list[ClaimId]:
        """One claim for each device of the list."""
        return list(self._workers.map(lambda device: self._one(node, device), devices))

    def _one(self, node: str, device: str) -> ClaimId:
        name = f"claim-{next(self._numbers)}"
        request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
        claim = self._client.create(
            CLAIMS.path(NAMESPACE),
            {
                "apiVersion": CLAIMS.api_version,
                "kind": CLAIMS.kind,
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"devices": {"requests": [request]}},
            },
        )
        result = {"request": "gpu", "driver": DRIVER, "pool": pool_name(node, DRIVER), "device": device}
        claim["status"] = {"allocation": {"devices": {"results": [result]}}}
        self._client.replace(CLAIMS.path(NAMESPACE, name, "status"), claim)
        return ClaimId(name, claim["metadata"]["uid"])


class Kubelet:
    """The kubelet's side of one plugin: a connection, and the two calls, timed in milliseconds."""

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix://{socket}", options=OPTIONS)
        grpc.channel_ready_future(self._channel).result(timeout=60)
        self._prepare = self._call("Prepare")
        self._unprepare = self._call("Unprepare")

    def close(self) -> None:
        self._channel.close()

    def prepare(self, claim: ClaimId) -> float:
        request = dra_pb2.NodePrepareResourcesRequest(claims=[_wire(claim)])
        begun = time.perf_counter()
        answer = self._prepare(request, timeout=45)
        taken = time.perf_counter() - begun
        assert not answer.claims[claim.uid].error, answer.claims[claim.uid].error
        assert answer.claims[claim.uid].devices
        return 1e3 * taken

    def unprepare(self, claim: ClaimId) -> float:
        request = dra_pb2.NodeUnprepareResourcesRequest(claims=[_wire(claim)])
        begun = time.perf_counter()
        answer = self._unprepare(request, timeout=45)
        taken = time.perf_counter() - begun
        assert not answer.claims[claim.uid].error, answer.claims[claim.uid].error
        return 1e3 * taken

    def _call(self, verb: str) -> Callable[..., Any]:
        call: Callable[..., Any] = self._channel.unary_unary(
            f"/{SERVICE}/Node{verb}Resources",
            getattr(dra_pb2, f"Node{verb}ResourcesRequest").SerializeToString,
            getattr(dra_pb2, f"Node{verb}ResourcesResponse").FromString,
        )
        return call


class BareGet:
    """The cheapest GET that Python's own library can do: one connection kept, the body read and not looked at."""

    def __init__(self, place: Place) -> None:
        pki = place.cluster.layout.pki
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        self._connection = http.client.HTTPSConnection(place.cluster.addresses.control_plane, 443, context=context)
        self._connection.connect()

    def close(self) -> None:
        self._connection.close()

    def __call__(self, claim: ClaimId) -> float:
        path = CLAIMS.path(NAMESPACE, claim.name)
        begun = time.perf_counter()
        self._connection.request("GET", path, headers={"Accept": "application/json"})
        body = self._connection.getresponse().read()
        taken = time.perf_counter() - begun
        assert json.loads(body)["metadata"]["uid"] == claim.uid
        return 1e3 * taken


def durable_write(folder: Path, size: int) -> float:
    """Write, fsync, rename, fsync of the directory: what any state that survives a power cut costs."""
    begun = time.perf_counter()
    LocalDisk().write(folder / "floor.json", b"x" * size)
    return 1e3 * (time.perf_counter() - begun)


def new_link(folder: Path) -> float:
    """A symbolic link made and removed: what a hold costs. No floor, but on a file system without a journal no trifle."""
    path = folder / "link"
    begun = time.perf_counter()
    path.symlink_to("6b327d9f-43c9-4367-b81e-98f411debd9b")
    taken = time.perf_counter() - begun
    path.unlink()
    return 1e3 * taken


def one_by_one(place: Place, claims: Claims, plugins: dict[str, "Served"], count: int) -> Samples:
    """`count` claims prepared and released at each plugin, and each floor as often, in turns."""
    samples: Samples = defaultdict(list)
    names = list(plugins)
    first = plugins[names[0]]
    state, volatile = place.node_dir(first.node) / "floor", place.volatile / "floor"
    for folder in (state, volatile):
        folder.mkdir(parents=True, exist_ok=True)
    made = {
        name: claims.make(served.node, served.free * (count // len(served.free) + 1))
        for name, served in plugins.items()
    }
    with _echo(place) as echo, _closing(BareGet(place)) as get:
        for number in range(count):
            for name in names if number % 2 else reversed(names):
                served, claim = plugins[name], made[name][number]
                if served is first:
                    samples["echo"].append(echo.prepare(claim))
                    samples["get"].append(get(claim))
                    samples["durable write"].append(durable_write(state, 450))
                    samples["CDI write"].append(durable_write(volatile, 450))
                    samples["new link"].append(new_link(state))
                samples[f"prepare, {name}"].append(served.kubelet.prepare(claim))
                samples[f"unprepare, {name}"].append(served.kubelet.unprepare(claim))
    return samples


def at_once(place: Place, claims: Claims, served: "Served", count: int, clients: int = 8) -> Samples:
    """`clients` callers at work at the same time, each on a device of its own, as many calls to the echo before."""
    samples: Samples = defaultdict(list)
    made = [claims.make(served.node, [device] * (count // clients)) for device in served.free[:clients]]
    guard = threading.Lock()

    def together(work: Callable[[int], list[tuple[str, float]]]) -> None:
        with ThreadPoolExecutor(clients) as workers:
            for found in workers.map(work, range(clients)):
                with guard:
                    for what, taken in found:
                        samples[what].append(taken)

    with _echo(place) as echo:
        together(lambda mine: [("echo", echo.prepare(claim)) for claim in made[mine] for _ in range(2)])
    kubelet = served.kubelet
    together(
        lambda mine: [
            sample
            for claim in made[mine]
            for sample in (("prepare", kubelet.prepare(claim)), ("unprepare", kubelet.unprepare(claim)))
        ]
    )
    return samples


@dataclass(frozen=True, slots=True)
class Served:
    """A plugin at work, with claims that stay prepared."""

    node: str
    part: Part
    kubelet: Kubelet
    free: list[str]
    """Devices that no claim holds."""


@contextmanager
def serving(
    place: Place, client: Client, claims: Claims, node: str, machine: Path, *, held: int, trace: Path | None = None
) -> Iterator[Served]:
    """A plugin that holds so many claims already; with `trace`, under strace, which writes there."""
    make_node(client, node)
    devices = device_names(machine)
    prefix = () if trace is None else (str(strace()), "-f", "-y", "-qq", "-e", f"trace={TRACED}", "-o", str(trace))
    part = place.start_plugin(node, machine, prefix=prefix)
    try:
        socket = place.node_dir(node) / "p/dra.sock"
        until(f"the plugin of {node} listens", socket.exists)
        kubelet = Kubelet(socket)
        # The hardware is looked at beside the sockets: the first claim that is taken says that it is known.
        kept = claims.make(node, devices[:held])
        until("the plugin knows its machine", lambda: _is_taken(kubelet, kept[0]))
        for claim in kept:
            kubelet.prepare(claim)
        yield Served(node, part, kubelet, devices[held:])
        kubelet.close()
    finally:
        if trace is None:
            stop(part)
        else:  # strace ends when its child does
            child = int(Path(f"/proc/{part.pid}/task/{part.pid}/children").read_text().split()[0])
            end([child], signal.SIGTERM, 20.0)


def strace() -> str | None:
    """Where it is."""
    return shutil.which("strace")


def _is_taken(kubelet: Kubelet, claim: ClaimId) -> bool:
    try:
        kubelet.prepare(claim)
    except AssertionError:
        return False
    return True


@contextmanager
def _echo(place: Place) -> Iterator[Kubelet]:
    socket = place.cluster.dir / "echo.sock"
    socket.unlink(missing_ok=True)
    part = place.start("echo", "tests.bench.echo", str(socket))
    until("the echo listens", socket.exists)
    kubelet = Kubelet(socket)
    try:
        yield kubelet
    finally:
        kubelet.close()
        part.kill()


@contextmanager
def _closing(thing: Any) -> Iterator[Any]:
    try:
        yield thing
    finally:
        thing.close()


def _wire(claim: ClaimId) -> Any:
    return dra_pb2.Claim(namespace=NAMESPACE, name=claim.name, uid=claim.uid)
