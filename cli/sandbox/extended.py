"""The claim that kube-scheduler makes for a pod that asks for devices as an extended resource, such as nvidia.com/gpu.

Source: Kubernetes 1.37.2, pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from api import quantities
from controller.allocator.question import Object

ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Each class can be asked for under this prefix and its name, whatever its extendedResourceName."""


@dataclass(frozen=True, slots=True)
class Special:
    """What has to be claimed for a pod's extended resources."""

    claim: Object
    """A ResourceClaim to create, by `generateName`."""
    mappings: tuple[Object, ...]
    """`requestMappings` of the pod's `status.extendedResourceClaimStatus`."""


def classes_by_resource(classes: Iterable[Object]) -> dict[str, str]:
    """The DeviceClass behind each extended resource. Of several with one name the youngest counts, then the first by name."""
    by_age = sorted(classes, key=lambda item: str(item["metadata"]["name"]), reverse=True)
    by_age.sort(key=lambda item: str(item["metadata"].get("creationTimestamp", "")))
    found: dict[str, str] = {}
    for item in by_age:
        name = item["metadata"]["name"]
        found[IMPLICIT_PREFIX + name] = name
        explicit = (item.get("spec") or {}).get("extendedResourceName")
        if explicit:
            found[explicit] = name
    return found


def by_devices(asked: Iterable[str], node: Object, classes: Mapping[str, str]) -> frozenset[str]:
    """Which of the resources devices meet on this node: those with a class, unless a device plugin offers them there."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return frozenset(
        name for name in asked if name in classes and not quantities.parse(str(allocatable.get(name, "0")))
    )


def special(pod: Object, resources: frozenset[str], classes: Mapping[str, str]) -> Special:
    """The claim for these resources: a request per container, which init containers that end may use before."""
    requests: list[Object] = []
    mappings: list[Object] = []
    for resource in sorted(resources):
        more, mapped = _of_resource(pod, resource, classes[resource])
        requests += more
        mappings += mapped
    meta = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "namespace": meta["namespace"],
            "generateName": f"{meta['name']}-extended-resources-",
            "annotations": {ANNOTATION: "true"},
            "ownerReferences": [owner],
        },
        "spec": {"devices": {"requests": sorted(requests, key=lambda request: str(request["name"]))}},
    }
    return Special(claim, tuple(mappings))


def made_for(pod: Object, claims: Iterable[Object]) -> Object | None:
    """The special claim that was made for this pod before, if there is one."""
    uid = pod["metadata"]["uid"]
    for claim in claims:
        meta = claim["metadata"]
        if (meta.get("annotations") or {}).get(ANNOTATION) == "true" and any(
            owner.get("uid") == uid and owner.get("controller") for owner in meta.get("ownerReferences") or ()
        ):
            return claim
    return None


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What one container adds."""

    request: str
    count: int
    """0 where it adds nothing and uses the requests of others alone."""
    uses: tuple[str, ...]
    container: str


def _of_resource(pod: Object, resource: str, class_name: str) -> tuple[list[Object], list[Object]]:
    spec = pod["spec"]
    inits = list(spec.get("initContainers") or ())
    containers = [*inits, *(spec.get("containers") or ())]
    ending = [i for i, each in enumerate(inits) if each.get("restartPolicy") != "Always"]
    lasting = {i: _wanted(i, each, resource, []) for i, each in enumerate(containers) if i not in ending}
    early = [_wanted(i, containers[i], resource, [lasting[j] for j in sorted(lasting) if j >= i]) for i in ending]
    # Init containers that end run one after the other: the largest of their requests serves them all.
    largest = max((each for each in early if each.count), key=lambda each: each.count, default=None)
    kept = [each for each in lasting.values() if each.count] + ([largest] if largest else [])
    others = {each.request for each in early if each.count}
    requests: list[Object] = [
        {
            "name": each.request,
            "exactly": {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": each.count},
        }
        for each in kept
    ]
    mappings = [_mapping(each.container, resource, name) for each in lasting.values() for name in each.uses]
    for each in early:
        names = [largest.request if largest and name in others else name for name in each.uses]
        mappings += [_mapping(each.container, resource, name) for name in names]
    return requests, mappings


def _wanted(index: int, container: Object, resource: str, reusable: list[_Wanted]) -> _Wanted:
    resources = container.get("resources") or {}
    # The API server sets requests from limits where only those are given.
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    amount = quantities.parse(str(asked.get(resource, "0")))
    name = f"container-{index}-request-{sorted(asked).index(resource) if resource in asked else 0}"
    if amount.denominator != 1 or not amount:
        return _Wanted(name, 0, (), container["name"])
    left, uses = int(amount), []
    for other in reusable:
        if other.count:
            uses.append(other.request)
            left -= other.count
            if left <= 0:
                return _Wanted(name, 0, tuple(uses), container["name"])
    return _Wanted(name, left, (*uses, name), container["name"])


def _mapping(container: str, resource: str, request: str) -> Object:
    return {"containerName": container, "resourceName": resource, "requestName": request}
