"""Whether a node is one of those that a slice, a device or an allocation names.

Source: k8s.io/component-helpers scheduling/corev1/nodeaffinity, and apimachinery pkg/labels.
"""

import re
from collections.abc import Mapping
from typing import Any

from api.refusals import Refused
from controller.allocator.question import Object
from controller.allocator.refusals import Unsupported

_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)


def reaches(node: Object, place: Object, where: str) -> bool:
    """Whether `nodeName`, `allNodes` or `nodeSelector` of `place` (a slice's spec or a device) covers the node."""
    if place.get("nodeName"):
        return bool(place["nodeName"] == node["metadata"]["name"])
    if place.get("allNodes"):
        return True
    selector = place.get("nodeSelector")
    return selector is not None and matches(node, selector, where)


def matches(node: Object, selector: Object, where: str) -> bool:
    """Whether a v1.NodeSelector picks the node; terms are alternatives, an empty one picks nothing."""
    return any(_term(node, term, where) for term in selector.get("nodeSelectorTerms") or ())


def _term(node: Object, term: Object, where: str) -> bool:
    labels = node["metadata"].get("labels") or {}
    names = {"metadata.name": node["metadata"]["name"]}
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    # Every requirement is looked at, so that one that cannot be read is seen whatever the others say.
    found = [_requirement(labels, requirement, where) for requirement in expressions]
    found += [_field(names, requirement, where) for requirement in fields]
    return all(found)


def _requirement(labels: Mapping[str, str], requirement: Object, where: str) -> bool:
    key: str = requirement.get("key", "")
    values: list[str] = requirement.get("values") or []
    match requirement.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case "Gt" if len(values) == 1:
            return _compare(labels.get(key), values[0], where) > 0
        case "Lt" if len(values) == 1:
            return _compare(labels.get(key), values[0], where) < 0
        case operator:
            raise Refused(Unsupported(where, f"the node selector's operator {operator} with {len(values)} values"))


def _compare(label: str | None, value: Any, where: str) -> int:
    """-1, 0 or 1; 0 also for a label that is absent or no number, which neither Gt nor Lt picks."""
    if not _WHOLE.fullmatch(value):
        raise Refused(Unsupported(where, f"the node selector's value {value!r}, which is no whole number,"))
    if label is None or not _WHOLE.fullmatch(label):
        return 0
    return (int(label) > int(value)) - (int(label) < int(value))


def _field(names: Mapping[str, str], requirement: Object, where: str) -> bool:
    key: str = requirement.get("key", "")
    values: list[str] = requirement.get("values") or []
    if len(values) != 1 or requirement.get("operator") not in ("In", "NotIn"):
        raise Refused(Unsupported(where, f"the node selector's matchFields {requirement.get('operator')} {values}"))
    return (names.get(key, "") == values[0]) is (requirement["operator"] == "In")
