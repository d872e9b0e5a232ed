"""The story that `lanewise demo` tells. Every sentence is read from the cluster or the disk, and what must be so is checked."""

import stat
import time
from collections.abc import Callable

from api.inventory import decode
from cli import tree
from cli.columns import columns
from cli.sandbox.cluster import SandboxCluster
from cli.story import asks
from cli.story.abridged import abridged
from cli.story.asks import Ask
from cli.story.holdings import Holding, is_running, results
from cli.story.teller import Teller
from cli.story.view import NotAsTold, View

REST_SECONDS = 0.3
"""How long pods and claims must stay as they are before they are told of: many times what a stand-in takes to react."""


class Rest:
    """Whether something has been the same for a while: what is read in the middle of a change may be half of it."""

    def __init__(self, look: Callable[[], object], *, clock: Callable[[], float] = time.monotonic) -> None:
        """`look` gives None while it is too early to ask."""
        self._look, self._clock = look, clock
        self._last: object = None
        self._since = 0.0

    def __call__(self) -> bool:
        """Look again."""
        now, seen = self._clock(), self._look()
        if seen != self._last:
            self._last, self._since = seen, now
        return seen is not None and now - self._since >= REST_SECONDS


class Tale:
    """One telling, on a cluster with one node that has just started."""

    def __init__(self, cluster: SandboxCluster, teller: Teller) -> None:
        self._cluster, self._teller = cluster, teller
        self._view = View(cluster)
        self._node = self._view.node
        self._asked: list[Ask] = []

    def tell(self) -> None:
        """All chapters. NotAsTold or ClusterFailed when something is not as it should be."""
        self._cluster.await_that("what is published stays as it is", Rest(self._view.published))
        self._found()
        self._published()
        self._shared_out()
        if self._view.holdings():
            self._prepared()
            self._passed_on()
        self._released()

    # Before anybody asks.

    def _found(self) -> None:
        machine = decode(self._view.must("nodeinventories", self._node.name, "")).machine
        self._teller.chapter("What the node plugin found")
        title = f"{self._node.name} ({_counted(len(machine.gpus), 'GPU')}, {_counted(len(machine.nics), 'NIC')})"
        self._teller.show(tree.lines(machine, title, marks=self._teller.marks))
        self._teller.gap()
        if not machine.simulated:
            raise NotAsTold("a machine that is simulated", "one that is not")
        driver = f"driver {machine.driver.version or 'unknown'}, CUDA {machine.driver.cuda_version or 'unknown'}"
        self._teller.say(
            f"The machine is made up from {self._node.machine.name} ({driver}). It is drawn as its devices hang together: the "
            "fewer branches between two of them, the shorter the way for their data."
        )

    def _published(self) -> None:
        condition = self._cluster.settled(self._node.name) or {}
        slices, devices = self._cluster.objects("resourceslices"), self._view.devices()
        self._teller.chapter("What the controller published")
        if not devices:
            self._teller.warn(f"Nothing: {condition.get('message', 'it does not say why')}.")
            return
        self._teller.say(
            f"Kubernetes' scheduler chooses devices from ResourceSlices. Here is {_counted(len(slices), 'slice')} with "
            f"{_counted(len(devices), 'device')}. What it says of each, a pod may ask for:"
        )
        heads = ("DEVICE", "PRODUCT", "MEMORY", "BUS ADDRESS", "PCIE ROOT", "SWITCH", "NUMA")
        facts = ((d.name, d.product, d.memory, d.address, d.root, d.switch, d.numa) for d in devices)
        self._teller.show(columns(heads, facts).split("\n"))
        self._teller.gap()
        self._teller.say(f"The controller's word on it: {condition.get('message', 'none')}.")
        for device in devices:
            if device.taints:
                self._teller.warn(f"{device.name} is tainted, so no new pod gets it: {', '.join(device.taints)}")

    # Pods ask.

    def _shared_out(self) -> None:
        self._teller.chapter("Pods ask for GPUs")
        usable = len(self._view.free())
        self._ask(asks.one_gpu(), waits=0 if usable else 1)
        if self._view.free():
            self._ask(asks.shared_claim())
        if asks.has_near_pair(self._view.free()):
            self._ask(asks.near_pair())
        if usable:
            self._ask(asks.replicas(len(self._view.free()) + 1), waits=1)
        held = self._view.holdings()
        if held:
            self._teller.gap()
            self._show_holdings(held, usable)
        waiting = self._view.waiting()
        if len(waiting) != 1:
            raise NotAsTold("one pod that waits", ", ".join(one.pod for one in waiting) or "none")
        self._teller.gap()
        self._teller.say(f"{waiting[0].pod} has to wait. The scheduler says why:")
        self._teller.warn(waiting[0].why)

    def _ask(self, ask: Ask, *, waits: int = 0) -> None:
        """Apply, and wait until all pods run but so many, which were told why not."""
        self._teller.show([f"+ {ask.source}: {ask.caption}"])
        self._asked.append(ask)
        self._view.asked(ask.pods)
        for obj in ask.objects:
            self._cluster.apply(obj)
        running = len(ask.pods) - waits
        what = f"of the pods of {ask.source} {running} run and {waits} wait"
        rest = Rest(lambda: self._view.versions() if self._view.are_settled(ask.pods, running) else None)
        self._cluster.await_that(what, rest)

    def _show_holdings(self, held: tuple[Holding, ...], usable: int) -> None:
        known = {device.name: device for device in self._view.devices()}
        heads = ("POD", "CONTAINER", "CLAIM", "DEVICE", "PRODUCT", "BUS ADDRESS")
        rows = ((h.pod, h.container, h.claim, h.device, known[h.device].product, known[h.device].address) for h in held)
        self._teller.show(columns(heads, rows).split("\n"))
        holders: dict[str, set[str]] = {}
        for holding in held:
            holders.setdefault(holding.device, set()).add(holding.claim)
        if any(len(claims) > 1 for claims in holders.values()) or len(holders) != usable:
            raise NotAsTold(f"each of {usable} usable devices in one claim", str(holders))
        pods = _counted(len({holding.pod for holding in held}), "pod")
        used = _counted(len(holders), "device")
        self._teller.seen(f"Running: {pods}. In use: {used}, all that can be used, none of them by two claims.")

    # What the plugin did for one of them.

    def _prepared(self) -> None:
        holding = self._view.holdings()[0]
        self._teller.chapter(f"What the node plugin wrote for claim {holding.claim}")
        self._teller.say(
            f"Before pod {holding.pod} started, the kubelet asked the plugin to prepare its claim. The plugin noted on disk "
            "who has the device, so that it still knows after a crash, and wrote a file (CDI) that tells the container "
            "runtime what to put into the container:"
        )
        self._teller.gap()
        file, record = self._view.cdi_file(holding.claim_uid), self._view.record(holding.claim_uid)
        root = str(self._node.folder.machine_dir)
        lines = abridged(self._view.cdi(holding.claim_uid), shorten=lambda text: text.replace(root, "…"))
        self._teller.show([file.name, *lines])
        if not record.is_file():
            raise NotAsTold(f"a record at {record}", "none")
        self._teller.chapter(f"What container {holding.container} of pod {holding.pod} would see")
        self._show_container(holding)

    def _show_container(self, holding: Holding) -> None:
        view = self._node.kubelet.views("default", holding.pod).get(holding.container)
        if view is None:
            raise NotAsTold(f"CDI devices for {holding.pod}", "none")
        seen = view.edits
        uuids = {device.uuid for device in self._view.devices() if device.name == holding.device}
        if not any(line.partition("=")[2] in uuids for line in seen.env):
            raise NotAsTold(f"the UUID of {holding.device} in the environment", ", ".join(seen.env) or "none")
        self._teller.say("Added to its environment:")
        self._teller.show(seen.env)
        self._teller.say("Added to its files:")
        nodes = [(node.path, f"device node {node.major}:{node.minor}") for node in seen.device_nodes]
        files = [(mount.container_path, "file") for mount in seen.mounts]
        width = max((len(path) for path, _ in (*nodes, *files)), default=0)
        self._teller.show([f"{path:<{width}}  {what}" for path, what in (*nodes, *files)])
        if not stat.S_ISCHR((self._node.folder.machine_dir / "dev/nvidiactl").lstat().st_mode):
            self._teller.warn(
                "These are empty files in place of device nodes, because the kernel does not let this user make device nodes "
                "(mknod). Where it may, as root mostly does, the demo makes device nodes."
            )

    # It comes to an end.

    def _passed_on(self) -> None:
        (waiting,) = self._view.waiting()
        freed = self._view.holdings()[0]
        self._teller.chapter(f"Pod {freed.pod} is deleted, and {waiting.pod} gets its turn")
        self._cluster.delete(self._view.must("pods", freed.pod))
        self._cluster.await_that(f"pod {freed.pod} is gone", lambda: self._cluster.find("pods", freed.pod) is None)
        self._cluster.await_that(
            f"{waiting.pod} runs", lambda: is_running(self._view.must("pods", waiting.pod)) or None
        )
        taken = [holding.device for holding in self._view.holdings(waiting.pod)]
        if taken != [freed.device]:
            raise NotAsTold(f"{waiting.pod} on {freed.device}, the only one that is free", ", ".join(taken) or "none")
        self._teller.seen(f"{waiting.pod} runs, with {freed.device}: the device that {freed.pod} had.")
        paths = (self._view.record(freed.claim_uid), self._view.cdi_file(freed.claim_uid))
        self._cluster.await_that(
            f"record and CDI file of claim {freed.claim} are gone", lambda: not any(path.exists() for path in paths)
        )
        if results(self._view.must("resourceclaims", freed.claim)):
            raise NotAsTold(f"claim {freed.claim} without a device", "one with a device")
        self._teller.seen(
            f"The claim {freed.claim} is still there, without a device; its record and its CDI file are gone from the node."
        )

    def _released(self) -> None:
        self._teller.chapter("Everything is deleted")
        for ask in reversed(self._asked):
            for obj in reversed(ask.objects):
                if self._cluster.find(obj["kind"], obj["metadata"]["name"]) is not None:
                    self._cluster.delete(obj)
        self._cluster.await_that(
            "all pods and claims are gone", lambda: not self._view.pods() and not self._view.claims()
        )
        self._teller.seen("No pod and no claim is left.")
        self._cluster.await_that(
            "nothing is left of the claims on the node's disk", lambda: not self._view.left_on_disk()
        )
        self._teller.seen("On the node's disk is no record, no mark on a device and no CDI file any more.")
        devices = self._view.devices()
        if devices:
            self._teller.seen(f"Still published: {_counted(len(devices), 'device')}, none in use.")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
