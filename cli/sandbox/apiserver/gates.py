"""Which fields a server drops without a word because a feature gate is off.

Gates, stages and fields: facts of Kubernetes 1.34 to 1.37 (`pkg/features/kube_features.go`, `dropDisabledFields` of each
strategy). A field stays where the stored object already uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cli.sandbox.apiserver.kinds import Kind

_CLAIMS = ("resourceclaims", "resourceclaimtemplates")

# Gate → resource → names of the fields that go. Device-level node fields are named with their list in front.
FIELDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "DRAPartitionableDevices": {
        "resourceslices": (
            "sharedCounters",
            "consumesCounters",
            "perDeviceNodeSelection",
            "devices.nodeName",
            "devices.nodeSelector",
            "devices.allNodes",
        )
    },
    "DRADeviceTaints": {"resourceslices": ("taints",)} | dict.fromkeys(_CLAIMS, ("tolerations",)),
    "DRAConsumableCapacity": {"resourceslices": ("allowMultipleAllocations", "requestPolicy")}
    | dict.fromkeys(_CLAIMS, ("capacity", "distinctAttribute")),
    "DRADeviceBindingConditions": {"resourceslices": ("bindsToNode", "bindingConditions", "bindingFailureConditions")},
    "DRAListTypeAttributes": {"resourceslices": ("ints", "bools", "strings", "versions")},
    "DRAPartitionableDevicesType": {"resourceslices": ("partitionTypeAttribute",)},
    "DRAOptionalNodeOperations": {"resourceslices": ("skipNodeOperations",)},
    "DRADeviceCompatibilityGroups": {"resourceslices": ("compatibilityGroups",)},
    "DRADerivedAttributes": dict.fromkeys(_CLAIMS, ("derivedAttributes",)),
    "DRANodeAllocatableResources": {"resourceslices": ("nodeAllocatableResources",)},
    "DRAExtendedResource": {"deviceclasses": ("extendedResourceName",)},
    "DRAAdminAccess": dict.fromkeys(_CLAIMS, ("adminAccess",)),
    "DRAPrioritizedList": dict.fromkeys(_CLAIMS, ("firstAvailable",)),
    "DRAResourceClaimDeviceStatus": {"resourceclaims": ("status.devices",)},
}

OFF_BY_DEFAULT = frozenset(
    {
        "DRAListTypeAttributes",
        "DRAPartitionableDevicesType",
        "DRAOptionalNodeOperations",
        "DRADeviceCompatibilityGroups",
        "DRADerivedAttributes",
        "DRANodeAllocatableResources",
    }
)


@dataclass(frozen=True, slots=True)
class Gates:
    """Which gates are off; those not named have the default of 1.37."""

    off: frozenset[str] = OFF_BY_DEFAULT

    @staticmethod
    def of(settings: Mapping[str, bool]) -> Gates:
        """Defaults with settings laid over; KeyError for a gate that drops nothing here."""
        if unknown := settings.keys() - FIELDS.keys():
            raise KeyError(f"no such feature gate here: {', '.join(sorted(unknown))}")
        off = {g for g in FIELDS if not settings.get(g, g not in OFF_BY_DEFAULT)}
        return Gates(frozenset(off))

    def dropped_from(self, kind: Kind) -> frozenset[str]:
        """The fields an object of this kind loses."""
        if kind.group != "resource.k8s.io":
            return frozenset()
        return frozenset(name for gate in self.off for name in FIELDS[gate].get(kind.plural, ()))


def without(obj: Mapping[str, Any], names: Iterable[str], old: Mapping[str, Any] | None) -> dict[str, Any]:
    """The object without the fields of these names in spec and status, save those that the old object uses."""
    gone = frozenset(n for n in names if old is None or not _uses(old, n))
    if not gone:
        return dict(obj)
    return {k: _strip(v, gone, k) if k in ("spec", "status") else v for k, v in obj.items()}


def _strip(value: Any, gone: frozenset[str], parent: str) -> Any:
    if isinstance(value, Mapping):
        return {k: _strip(v, gone, k) for k, v in value.items() if k not in gone and f"{parent}.{k}" not in gone}
    if isinstance(value, list):
        return [_strip(item, gone, parent) for item in value]
    return value


def _uses(value: Any, name: str, parent: str = "") -> bool:
    if isinstance(value, Mapping):
        return any(name in (k, f"{parent}.{k}") or _uses(v, name, k) for k, v in value.items())
    return isinstance(value, list) and any(_uses(item, name, parent) for item in value)
