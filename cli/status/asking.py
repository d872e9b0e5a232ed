"""Asking the API server for what a status is told from: once, or again and again as it changes."""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from api.kube.client import Client
from api.kube.errors import Forbidden, Garbled, KubeError, NotServed
from api.kube.paths import CLAIMS, LEASES, NODE_INVENTORIES, NODES, PODS, SLICES, Resource
from api.kube.reflector import Change, Reflector
from api.refusals import Reason, Refused, Several
from cli.status.reading import (
    read_class,
    read_inventory,
    read_lease,
    read_node,
    read_pod,
    read_rule,
    read_slice,
    read_status_claim,
)
from cli.status.report import Report, Scope
from cli.status.summary import Snapshot, next_change, summarise

CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass")
TAINT_RULES = tuple(
    Resource("resource.k8s.io", version, "devicetaintrules", "DeviceTaintRule") for version in ("v1", "v1beta2")
)
"""v1 from Kubernetes 1.37; in 1.36 v1beta2, where somebody turned it on."""
SYNC_SECONDS = 30.0
LOOK_SECONDS = 5.0
"""How often a broken watch is noticed. Nothing is asked of the API server for it."""
SETTLE_SECONDS = 0.2
"""What happens together is drawn together."""

Transform = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class NoRight:
    """The API server does not let this user see what is needed."""

    verb: str
    resource: str
    scope: str
    said: str

    @property
    def what(self) -> str:
        return f"this user may not {self.verb} {self.resource} {self.scope}: {self.said}"

    @property
    def remedy(self) -> str:
        return "bind the ClusterRole lanewise-viewer to the user"


@dataclass(frozen=True, slots=True)
class Asked:
    """Whose status, and of what part of the cluster."""

    driver: str
    namespace: str
    """Where the plugins keep their Leases."""
    scope: Scope


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One kind of object: the field of the Snapshot that it goes into, where it is, and how it is read."""

    field: str
    resource: Resource
    namespace: str | None
    read: Transform

    @property
    def path(self) -> str:
        return self.resource.path(self.namespace)


def _wanted(asked: Asked, rules: Resource | None) -> tuple[_Wanted, ...]:
    """In the order in which they are listed. Claims before pods: a pod that has gone since is said to be gone, which it is,
    and one that has come since is found."""
    driver, inside = asked.driver, asked.scope.namespace
    taint_rules = (_Wanted("rules", rules, None, read_rule),) if rules is not None else ()
    return (
        _Wanted("inventories", NODE_INVENTORIES, None, read_inventory),
        _Wanted("slices", SLICES, None, lambda obj: read_slice(obj, driver)),
        *taint_rules,
        _Wanted("classes", CLASSES, None, lambda obj: read_class(obj, driver)),
        _Wanted("leases", LEASES, asked.namespace, read_lease),
        _Wanted("nodes", NODES, None, read_node),
        _Wanted("claims", CLAIMS, inside, lambda obj: read_status_claim(obj, driver)),
        _Wanted("pods", PODS, inside, read_pod),
    )


def ask(client: Client, asked: Asked, now: Callable[[], datetime]) -> Report:
    """The status as of now. Refused with all the rights that are missing, or with why the API server could not be asked."""
    found, _ = _list(client, asked)
    return summarise(found, driver=asked.driver, scope=asked.scope, now=now())


def _list(client: Client, asked: Asked) -> tuple[Snapshot, Resource | None]:
    """Everything once, and the version of taint rules that the API server has."""
    missing: list[Reason] = []
    rules = _served_rules(client, missing)
    fields: dict[str, tuple[Any, ...]] = {}
    for wanted in _wanted(asked, rules):
        try:
            listing = client.list_pages(wanted.path, keep=wanted.read)
        except Forbidden as error:
            missing.append(_no_right(wanted.resource, wanted.namespace, "list", error))
            continue
        except KubeError as error:
            raise Refused(error) from error
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            # To leave it out could make a device look free that it holds.
            problem = f"an object of the answer cannot be read: {type(error).__name__}: {error}"
            raise Refused(Garbled(f"GET {wanted.path}", problem)) from error
        fields[wanted.field] = tuple(item for item in listing.items if item is not None)
    if missing:
        raise Refused(missing[0] if len(missing) == 1 else Several(tuple(missing)))
    return Snapshot(**fields), rules


def _served_rules(client: Client, missing: list[Reason]) -> Resource | None:
    for resource in TAINT_RULES:
        try:
            client.get(resource.path(), {"limit": 1})
        except NotServed:
            continue
        except Forbidden as error:
            missing.append(_no_right(resource, None, "list", error))
            return None
        except KubeError as error:
            raise Refused(error) from error
        return resource
    return None


def _no_right(resource: Resource, namespace: str | None, verb: str, error: Forbidden) -> NoRight:
    name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    where = f"in namespace {namespace}" if namespace else "in the whole cluster"
    return NoRight(verb, name, where, error.message or "403 Forbidden")


def follow(
    client: Client,
    asked: Asked,
    draw: Callable[[Report, tuple[str, ...]], None],
    ended: threading.Event,
    now: Callable[[], datetime],
) -> None:
    """Call `draw` with each report that differs from the one before, and with what keeps it from being up to date, until
    `ended`. Refused as for `ask`, before anything is drawn."""
    _, rules = _list(client, asked)
    changed = threading.Event()
    wanted = _wanted(asked, rules)
    reflectors: dict[str, Reflector[Any]] = {
        each.field: Reflector(client, each.path, handler=_Wake(changed), transform=each.read) for each in wanted
    }
    try:
        for reflector in reflectors.values():
            reflector.start()
        for reflector in reflectors.values():
            reflector.wait_synced(SYNC_SECONDS)
        told: tuple[Report, tuple[str, ...]] | None = None
        while not ended.is_set():
            changed.clear()
            facts = Snapshot(**{field: tuple(each.snapshot().values()) for field, each in reflectors.items()})
            moment = now()
            report = summarise(facts, driver=asked.driver, scope=asked.scope, now=moment)
            troubles = _troubles({each.resource.plural: reflectors[each.field] for each in wanted})
            if (report, troubles) != told:
                told = (report, troubles)
                draw(report, troubles)
            stale_in = next_change(facts, moment)
            if changed.wait(LOOK_SECONDS if stale_in is None else min(LOOK_SECONDS, stale_in)):
                ended.wait(SETTLE_SECONDS)
    finally:
        for reflector in reflectors.values():
            reflector.stop()


def _troubles(reflectors: Mapping[str, Reflector[Any]]) -> tuple[str, ...]:
    told: Iterable[str] = (
        f"{what} are not up to date: {reflector.state.last_error or 'the first list has not come'}"
        for what, reflector in reflectors.items()
        if reflector.state.last_error or not reflector.state.synced
    )
    return tuple(told)


class _Wake:
    """A handler that says only that something has changed."""

    def __init__(self, changed: threading.Event) -> None:
        self._changed = changed

    def on_change(self, change: Change, old: object, new: object) -> None:  # noqa: ARG002  # all is read anew
        self._changed.set()

    def on_synced(self) -> None:
        self._changed.set()
