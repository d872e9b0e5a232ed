"""A node as the controller sees it, told event by event, with a clock that only the story moves."""

from typing import Any

from api.inventory import Instance
from api.names import pool_name
from controller.decide import Decision, decide
from controller.signs import LeaseInfo
from controller.state import NodeInfo, State
from tests.support.gpus import NODE_UID, a_machine, an_inventory

DRIVER = "gpu.lanewise.dev"
STALE = 40.0


class Story:
    """One node `node-a`. Verbs are what happens in the cluster; `look` is what the controller makes of it."""

    def __init__(self, *, listed: bool = True, count: int = 2) -> None:
        self.now = 1000.0
        self.woken: list[str] = []
        self.state = State(self.woken.append, lambda: self.now)
        self.machine = a_machine(count)
        self.instances: dict[str, Instance] = {}
        self.renewals: dict[str, int] = {}
        self.version = 1
        self.slices: list[dict[str, Any]] = []
        self.state.node_is(NodeInfo("node-a", NODE_UID))
        if listed:
            self.listed()

    def listed(self) -> None:
        """The first lists are in."""
        self.state.inventories_listed()
        self.state.leases_listed()

    def after(self, seconds: float) -> "Story":
        """Time goes by."""
        self.now += seconds
        return self

    # The plugin.

    def report(self) -> None:
        self.version += 1
        inventory = an_inventory(
            machine=self.machine, instances=tuple(self.instances.values()), version=str(self.version)
        )
        self.state.inventory_is(inventory)

    def starts(self, name: str = "i1", *, registered: bool = True) -> None:
        """An instance renews its Lease, then appears in the inventory."""
        self.renews(name)
        self.instances[name] = Instance(name, registered=registered, lease=f"lease-{name}")
        self.report()

    def renews(self, name: str = "i1", *, holder: str = "node-a") -> None:
        self.renewals[name] = self.renewals.get(name, 0) + 1
        self.state.lease_is(LeaseInfo(f"lease-{name}", f"renewal {self.renewals[name]}", holder))

    def registers(self, name: str = "i1", *, registered: bool = True) -> None:
        """The kubelet takes it, or lets go of it."""
        self.instances[name] = Instance(
            name, registered=registered, lease=f"lease-{name}", registered_at=f"at {self.now}"
        )
        self.report()

    def stops(self, name: str = "i1") -> None:
        """As told to: it takes its own marks away and nothing else."""
        del self.instances[name]
        self.report()
        self.state.lease_gone(f"lease-{name}")

    def works(self, seconds: float, *names: str) -> None:
        """Renewals every 10 s for so long."""
        for _ in range(int(seconds // 10)):
            self.after(10)
            for name in names or ("i1",):
                self.renews(name)

    # The kubelet, and whoever else deletes.

    def wipe(self) -> None:
        """All slices are deleted by somebody else."""
        for obj in self.slices:
            self.state.slice_gone(obj)
        self.slices = []

    # The controller.

    def decide(self) -> Decision:
        return decide(
            self.state.facts("node-a"), self.now, driver=DRIVER, stale_seconds=STALE, allow_shared_ownership=False
        )

    def look(self) -> str:
        """One pass, its writes done; what the cluster shows then: `clean`, `tainted <why>` or `none`."""
        facts = self.state.facts("node-a")
        decision = self.decide()
        if decision.slices is not None:
            for obj in self.slices:
                self.state.deleting(obj["metadata"]["uid"])
                self.state.slice_gone(obj)
            self.slices = []
            for spec in decision.slices:
                self.version += 1
                metadata = {"name": "s", "uid": f"s{self.version}", "resourceVersion": str(self.version)}
                assert spec["pool"]["name"] == pool_name("node-a", DRIVER)
                self.slices.append({"metadata": metadata, "spec": spec})
                self.state.slice_is(self.slices[-1])
        if decision.published:
            self.state.republished("node-a", facts.signs.wiped_at)
        return self.shows()

    def shows(self) -> str:
        if not self.slices:
            return "none"
        whys = {
            taint["value"]
            for obj in self.slices
            for device in obj["spec"]["devices"]
            for taint in device.get("taints", ({"value": ""},))
        }
        (why,) = whys
        return f"tainted {why}" if why else "clean"
