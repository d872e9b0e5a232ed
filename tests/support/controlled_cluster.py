"""An API server with our CRD, a plugin's marks on request, and a controller at work on it."""

import contextlib
import itertools
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from api.hardware import Machine
from api.inventory import INVENTORY_MANAGER, Instance, Owner, encode_instance, encode_spec, instance_manager
from api.kube.client import Client
from api.kube.paths import LEASES, NODE_INVENTORIES, NODES, SLICES
from api.kube.server import Server
from cli.sandbox.apiserver import ApiServer, Request
from controller.run import Controller
from controller.settings import Settings
from tests.support.gpus import a_machine

CRD = Path(__file__).parents[2] / "deploy/crds/nodeinventories.yaml"
NAMESPACE = "lanewise-system"
SECONDS = 10.0
"""The longest a test waits for anything."""
QUICK = Settings(leader_election=False, stale_seconds=1.5)


class Town:
    """An API server, and what nodes and people do on it."""

    def __init__(self, api: ApiServer, client: Client) -> None:
        self.api = api
        self.client = client
        self._renewals = itertools.count()
        definition = yaml.safe_load(CRD.read_text())
        client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        api.store.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})

    # What happens.

    def node(self, name: str = "node-a", **allocatable: str) -> Owner:
        """A Node; allocatable by name with underscores for the odd characters: nvidia_com__gpu="8"."""
        resources = {key.replace("__", "/").replace("_", "."): value for key, value in allocatable.items()}
        obj = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "status": {"allocatable": {"cpu": "8", **resources}},
        }
        return Owner(name, self.api.store.put(obj)["metadata"]["uid"])

    def renew(self, instance: str = "i1", node: str = "node-a") -> None:
        """The Lease of a node's instance is renewed."""
        second = next(self._renewals)
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": f"lease-{instance}", "namespace": NAMESPACE},
            "spec": {
                "holderIdentity": node,
                "renewTime": f"2026-11-30T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.000000Z",
            },
        }
        self.client.apply(LEASES.path(NAMESPACE, f"lease-{instance}"), body, field_manager="test", force=True)

    @contextlib.contextmanager
    def pulse(self, nodes: Mapping[str, str] | None = None) -> Iterator[None]:
        """Leases are renewed again and again, whoever watches sees it happen. `nodes` by instance."""
        over = threading.Event()

        def renew() -> None:
            while not over.wait(0.1):
                for instance, node in (nodes or {"i1": "node-a"}).items():
                    self.renew(instance, node)

        thread = threading.Thread(target=renew)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def report(self, owner: Owner, machine: Machine) -> None:
        """A plugin writes what it found."""
        self.client.apply(
            NODE_INVENTORIES.path(name=owner.name),
            encode_spec(owner, machine),
            field_manager=INVENTORY_MANAGER,
            force=True,
        )

    def register(self, node: str = "node-a", instance: str = "i1", *, registered: bool = True) -> None:
        """The kubelet takes a plugin, or lets go of it."""
        entry = Instance(instance, registered=registered, lease=f"lease-{instance}")
        self.client.apply(
            NODE_INVENTORIES.path(name=node, subresource="status"),
            encode_instance(node, entry),
            field_manager=instance_manager(instance),
            force=True,
        )

    def plugin(self, owner: Owner, machine: Machine | None = None, instance: str = "i1") -> None:
        """A plugin that starts and is registered."""
        self.renew(instance, owner.name)
        self.report(owner, machine if machine is not None else a_machine(2))
        self.register(owner.name, instance)

    def wipe(self) -> None:
        """The kubelet deletes all slices."""
        for obj in self.slices():
            self.client.delete(SLICES.path(name=obj["metadata"]["name"]))

    # What is there.

    def slices(self, node: str | None = None) -> list[dict[str, Any]]:
        return [obj for obj in self.api.store.listed("resourceslices") if node in (None, obj["spec"].get("nodeName"))]

    def devices(self, node: str = "node-a") -> list[str]:
        return [device["name"] for obj in self.slices(node) for device in obj["spec"].get("devices", ())]

    def taints(self, node: str = "node-a") -> set[str]:
        return {
            taint["value"]
            for obj in self.slices(node)
            for device in obj["spec"].get("devices", ())
            for taint in device.get("taints", ())
        }

    def condition(self, kind: str = "Published", node: str = "node-a") -> dict[str, Any]:
        obj = self.api.store.get("nodeinventories", node) or {}
        found = [item for item in (obj.get("status") or {}).get("conditions", ()) if item["type"] == kind]
        return found[0] if found else {}

    def wait(self, what: Any, timeout: float = SECONDS) -> None:
        """Until `what()` holds after some change in the store."""
        with self.api.store.changed:
            held = self.api.store.changed.wait_for(what, timeout)
        assert held, (self.condition(), self.devices(), self.taints())

    def writes(self, *, agent: str = "controller") -> list[Request]:
        """The controller's writes so far; its own Lease does not count."""
        return [
            request
            for request in self.api.requests
            if request.writes and request.user_agent.startswith(agent) and "/leases" not in request.path
        ]


@contextlib.contextmanager
def a_town(**options: Any) -> Iterator[Town]:
    """An API server, ended afterwards."""
    with ApiServer(**options) as api, a_client(api, "test") as client:
        yield Town(api, client)


def a_client(api: ApiServer, agent: str) -> Client:
    return Client(Server(api.url), user_agent=agent, pool_size=8)


@contextlib.contextmanager
def a_controller(town: Town, settings: Settings = QUICK) -> Iterator[Controller]:
    """A controller at work, stopped afterwards."""
    with a_client(town.api, "controller") as client:
        controller = Controller(client, settings)
        controller.start()
        # What happens from here on is seen to happen; what was there before is of unknown age.
        assert controller.wait_synced(SECONDS)
        try:
            yield controller
        finally:
            controller.stop()


__all__ = ["NAMESPACE", "NODES", "QUICK", "SECONDS", "Town", "a_client", "a_controller", "a_town"]
