"""What the demo's pods ask for, step by step, after what is still free."""

import copy
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cli.shipped import documents, shipped
from cli.story.holdings import Device

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """Objects to apply, and what they are."""

    source: str
    """Where they come from, as one would name it to kubectl."""
    caption: str
    objects: tuple[Object, ...]

    @property
    def pods(self) -> tuple[str, ...]:
        """Names of its pods."""
        return tuple(obj["metadata"]["name"] for obj in self.objects if obj["kind"] == "Pod")


def one_gpu() -> Ask:
    """One GPU for one pod."""
    return _example("one-gpu", "a claim for one GPU, and a pod that uses it")


def shared_claim() -> Ask:
    """One GPU for three containers in two pods."""
    return _example(
        "shared-claim", "two pods that name the same claim, one of them with two containers: one GPU for all"
    )


def near_pair() -> Ask:
    """Two GPUs of one NUMA node."""
    return _example("two-gpus-one-numa-node", "one pod that wants two GPUs on the same NUMA node")


def has_near_pair(free: Iterable[Device]) -> bool:
    """Whether two free devices say that they are on the same NUMA node."""
    nodes = Counter(device.numa for device in free if device.numa is not None)
    return any(count > 1 for count in nodes.values())


def replicas(count: int) -> Ask:
    """The pods of the Deployment of examples/claim-template, as many as that, each with a claim made from the template. They
    are made here, because no Deployment controller is."""
    source = "claim-template"
    ask = _example(source, "")
    (deployment,) = (obj for obj in ask.objects if obj["kind"] == "Deployment")
    template = deployment["spec"]["template"]
    pods = tuple(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**copy.deepcopy(template["metadata"]), "name": f"{source}-{number}"},
            "spec": copy.deepcopy(template["spec"]),
        }
        for number in range(1, count + 1)
    )
    others = tuple(obj for obj in ask.objects if obj["kind"] != "Deployment")
    caption = f"{count} pods, each with a claim of its own that is made from a template"
    if count == 1:
        caption = "a pod with a claim that is made from a template"
    return Ask(ask.source, caption, (*others, *pods))


def _example(name: str, caption: str) -> Ask:
    return Ask(f"examples/{name}", caption, tuple(documents(shipped(f"examples/{name}"))))
