"""What the API server says that a diagnosis needs: asked once, and nothing here judges it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from api.inventory import LEASE_SECONDS
from api.kube.client import Client
from api.kube.errors import ApiError, Garbled, KubeError, NotFound, NotServed, Unauthorized, Unreachable
from api.kube.paths import LEASES, NODE_INVENTORIES, NODES, SLICES, resource
from cli.doctor.rights import FORBIDDEN, NEEDED, Right
from cli.status.facts import Lease
from cli.status.reading import read_lease
from controller.conflicts import ForeignSlice, foreign_slice
from controller.main import LEASE as LEADER_LEASE

T = TypeVar("T")
Object = Mapping[str, Any]

POLICIES = ("lanewise-node-inventory", "lanewise-node-lease", "lanewise-slices")
CRD = "nodeinventories.lanewise.dev"
_GATE = re.compile(r'^kubernetes_feature_enabled\{name="([^"]+)"[^}]*\} ([01])', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Unknown:
    """What was asked for, and could not be."""

    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Cluster:
    """All of it. None where the API server has no such object."""

    driver: str
    namespace: str
    node: str | None
    version: str
    serves_dra: "bool | Unknown"
    gates: "Mapping[str, bool] | Unknown"
    crd: "Object | Unknown | None"
    policies: "Mapping[str, Object | Unknown | None]"
    bindings: "Mapping[str, Object | Unknown | None]"
    gpu_class: "Object | Unknown | None"
    leader: "Lease | Unknown | None"
    plugin_leases: "tuple[Lease, ...] | Unknown"
    foreign: "tuple[ForeignSlice, ...] | Unknown"
    node_object: "Object | Unknown | None"
    inventory: "Object | Unknown | None"
    granted: "Mapping[Right, bool] | Unknown" = field(default_factory=dict)


def ask(client: Client, *, driver: str, namespace: str, node: str | None) -> Cluster:
    """Ask for everything. Raises a KubeError when nothing can be asked at all."""
    version = client.version().get("gitVersion")
    if not isinstance(version, str):
        raise Garbled("GET /version", "it names no gitVersion")
    one = _One(client)
    policies = "admissionregistration.k8s.io", "v1", "validatingadmissionpolicies"
    bindings = "admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings"
    leader = one.object(LEASES.path(namespace, LEADER_LEASE))
    return Cluster(
        driver=driver,
        namespace=namespace,
        node=node,
        version=version,
        serves_dra=_served(client),
        gates=one.known(lambda: _gates(client.text("/metrics"))),
        crd=one.object(resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", None, CRD)),
        policies={name: one.object(resource(*policies, None, name)) for name in POLICIES},
        bindings={name: one.object(resource(*bindings, None, name)) for name in POLICIES},
        gpu_class=one.object(resource("resource.k8s.io", "v1", "deviceclasses", None, driver)),
        leader=leader if leader is None or isinstance(leader, Unknown) else read_lease(leader),
        plugin_leases=one.known(lambda: client.list_pages(LEASES.path(namespace), keep=read_lease).items),
        foreign=one.known(lambda: _foreign(client, driver)),
        node_object=one.object(NODES.path(name=node)) if node else None,
        inventory=one.object(NODE_INVENTORIES.path(name=node)) if node else None,
        granted=one.known(lambda: _granted(client, namespace)),
    )


class _One:
    """Asks one thing; what this user may not see is not known, and no reason to ask no further."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def known(self, ask: Callable[[], T]) -> T | Unknown:
        try:
            return ask()
        except (Unreachable, Unauthorized):
            raise
        except ApiError as error:
            return Unknown(error.what, "run it with the rights of deploy/doctor-job.yaml")
        except KubeError as error:
            return Unknown(error.what, error.remedy)

    def object(self, path: str) -> Object | Unknown | None:
        def ask() -> Object | None:
            try:
                return self._client.get(path)
            except NotFound:
                return None
            except NotServed:
                return None

        return self.known(ask)


def _served(client: Client) -> "bool | Unknown":
    try:
        found = client.get("/apis/resource.k8s.io/v1")
    except (NotFound, NotServed):
        return False
    except ApiError as error:
        return Unknown(error.what, "run it with the rights of deploy/doctor-job.yaml")
    return any(each.get("name") == "resourceslices" for each in found.get("resources") or ())


def _gates(metrics: str) -> Mapping[str, bool]:
    """Feature gates by name (k8s.io/component-base, metrics/prometheus/feature)."""
    return {name: value == "1" for name, value in _GATE.findall(metrics)}


def _foreign(client: Client, driver: str) -> tuple[ForeignSlice, ...]:
    found = client.list_pages(
        SLICES.path(), keep=lambda obj: None if obj["spec"]["driver"] == driver else foreign_slice(obj)
    )
    return tuple(item for item in found.items if item is not None)


def _granted(client: Client, namespace: str) -> Mapping[Right, bool]:
    path = resource("authorization.k8s.io", "v1", "subjectaccessreviews")
    return {
        right: bool((client.create(path, right.review(namespace)).get("status") or {}).get("allowed"))
        for right in (*NEEDED, *FORBIDDEN)
    }


def is_fresh(lease: Lease, now: datetime, seconds: float = LEASE_SECONDS) -> bool:
    """Whether somebody renewed it within so many seconds, by our clock."""
    return lease.renewed is not None and (now - lease.renewed).total_seconds() < seconds
