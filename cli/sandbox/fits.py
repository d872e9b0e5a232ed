"""Whether a node would take a pod, devices aside: taints, labels, resources, and what is not understood.

Source: kube-scheduler's plugins NodeUnschedulable, TaintToleration, NodeAffinity and NodeResourcesFit (Kubernetes 1.37).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from api import quantities
from controller.allocator.nodes import matches
from controller.allocator.question import Object

UNSCHEDULABLE_TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_MEASURED = ("cpu", "memory", "ephemeral-storage", "pods")
"""Resources that a node has without any plugin; one that says nothing of them is not held to them here."""


def not_understood(pod: Object) -> str:
    """The first field of a pod that this scheduler would have to ignore, so that the pod is left alone; empty for none."""
    spec = pod["spec"]
    affinity = spec.get("affinity") or {}
    volumes = spec.get("volumes") or ()
    found = {
        "spec.schedulingGroup": spec.get("schedulingGroup"),
        "spec.affinity.podAffinity": (affinity.get("podAffinity") or {}).get(_REQUIRED),
        "spec.affinity.podAntiAffinity": (affinity.get("podAntiAffinity") or {}).get(_REQUIRED),
        "spec.topologySpreadConstraints": [
            each
            for each in spec.get("topologySpreadConstraints") or ()
            if each.get("whenUnsatisfiable") != "ScheduleAnyway"
        ],
        "spec.volumes with a persistentVolumeClaim": [
            each for each in volumes if each.get("persistentVolumeClaim") or each.get("ephemeral")
        ],
        "hostPort": [
            port for each in spec.get("containers") or () for port in each.get("ports") or () if port.get("hostPort")
        ],
    }
    return next((field for field, value in found.items() if value), "")


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def why_not(pod: Object, node: Object, others: Iterable[Object], by_devices: Iterable[str]) -> str:
    """Why the node does not take the pod beside `others`, the pods it has; empty when it does.

    `by_devices` are resources that are not asked of the node, because devices meet them.
    """
    spec, taints = pod["spec"], list((node.get("spec") or {}).get("taints") or ())
    if (node.get("spec") or {}).get("unschedulable"):
        taints.append(UNSCHEDULABLE_TAINT)
    for taint in taints:
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not any(
            _tolerates(toleration, taint) for toleration in spec.get("tolerations") or ()
        ):
            value = f": {taint['value']}" if taint.get("value") else ""
            return f"untolerated taint {{{taint['key']}{value}}}"
    labels = node["metadata"].get("labels") or {}
    wanted = (spec.get("nodeSelector") or {}).items()
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    where = f"pod {pod['metadata']['name']}"
    if any(labels.get(key) != value for key, value in wanted) or (
        required is not None and not matches(node, required, where)
    ):
        return "the pod's node affinity or node selector does not match"
    return _too_little(pod, node, others, frozenset(by_devices))


def requests(pod: Object) -> dict[str, Fraction]:
    """What a pod asks for in all: its containers together, or the largest of its init containers if that is more."""
    spec = pod["spec"]
    together: Counter[str] = Counter()  # of fractions, which Counter adds as well
    for container in spec.get("containers") or ():
        together.update(_asked(container))
    most: dict[str, Fraction] = {}
    beside: Counter[str] = Counter()
    for container in spec.get("initContainers") or ():
        asked = _asked(container)
        if container.get("restartPolicy") == "Always":  # a sidecar: it runs on beside what comes later
            beside.update(asked)
            asked = dict(beside)
        else:
            asked = {name: asked.get(name, Fraction(0)) + beside[name] for name in {*asked, *beside}}
        most = {name: max(most.get(name, Fraction(0)), asked.get(name, Fraction(0))) for name in {*most, *asked}}
    together.update(beside)
    total: dict[str, Any] = {name: max(together[name], most.get(name, Fraction(0))) for name in {*together, *most}}
    return {**total, "pods": Fraction(1)}


def _asked(container: Mapping[str, Any]) -> dict[str, Any]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: quantities.parse(str(amount)) for name, amount in asked.items()}


def _too_little(pod: Object, node: Object, others: Iterable[Object], by_devices: frozenset[str]) -> str:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    used: Counter[str] = Counter()
    for other in others:
        used.update(requests(other))
    for name, amount in sorted(requests(pod).items()):
        if not amount or name in by_devices or (name in _MEASURED and name not in allocatable):
            continue
        if used[name] + amount > quantities.parse(str(allocatable.get(name, "0"))):
            return "too many pods" if name == "pods" else f"insufficient {name}"
    return ""


def _tolerates(toleration: Object, taint: Object) -> bool:
    """component-helpers, scheduling/corev1/toleration; of the operators Exists and Equal."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    same = (toleration.get("value") or "") == (taint.get("value") or "")
    return toleration.get("operator") in (None, "", "Equal") and bool(toleration.get("key")) and same
