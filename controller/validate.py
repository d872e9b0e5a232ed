"""What the API server would refuse in a device, a slice or a pool.

One device that breaks a rule makes its slice invalid, and a missing slice takes the whole pool out of use, so all is checked
before the first write. Limits: resource.k8s.io/v1 of Kubernetes 1.36 and 1.37 (pkg/apis/resource/validation).
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from api import quantities
from api.names import is_dns_label, is_dns_subdomain
from api.versions import is_semver

DEVICES_MAX = 64
"""Devices in a slice. 128 are taken without taints; the first taint would then make a fuller slice invalid (Case I3)."""
ENTRIES_MAX = 32
"""Attributes and capacities of a device together."""
TEXT_MAX = 64
"""Bytes of a string or version attribute."""
TAINTS_MAX = 16
COUNTER_SETS_MAX = 8
POOL_NAME_MAX = 253
DOMAIN_MAX = 63
"""Bytes of a driver's name, and of the domain of an attribute's name."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}", re.ASCII)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_EFFECTS = ("None", "NoSchedule", "NoExecute")


def is_attribute_name(name: str) -> bool:
    """A C identifier of at most 32 bytes, alone or behind one DNS subdomain and a slash.

    Stricter than Kubernetes 1.37.2, which lets names with two slashes through unchecked.
    """
    domain, slash, key = name.rpartition("/")
    return _IDENTIFIER.fullmatch(key) is not None and (
        not slash or (len(domain) <= DOMAIN_MAX and is_dns_subdomain(domain))
    )


def is_label_name(name: str) -> bool:
    """What a taint's key must be: a label key, with or without a DNS subdomain and a slash in front."""
    domain, slash, key = name.rpartition("/")
    return bool(key) and is_label_value(key) and (not slash or is_dns_subdomain(domain))


def is_label_value(value: str) -> bool:
    """What a taint's value must be: empty, or at most 63 characters that begin and end with a letter or digit."""
    return _LABEL_VALUE.fullmatch(value) is not None


def faults_of_device(device: Mapping[str, Any]) -> tuple[str, ...]:
    """All that is wrong with one device (an entry of `spec.devices`), each as a phrase to put behind its name."""
    faults = [] if is_dns_label(device["name"]) else [f"the name {device['name']!r} is no DNS label"]
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if len(attributes) + len(capacity) > ENTRIES_MAX:
        faults.append(
            f"{len(attributes)} attributes and {len(capacity)} capacities are more than {ENTRIES_MAX} together"
        )
    faults += [
        f"{key!r} is no attribute name: a C identifier of at most 32 bytes, or that behind a domain and a slash"
        for key in (*attributes, *capacity)
        if not is_attribute_name(key)
    ]
    for key, value in attributes.items():
        faults += [f"attribute {key} {fault}" for fault in _value_faults(value)]
    for key, entry in capacity.items():
        try:
            quantities.parse(str(entry.get("value")))
        except ValueError as error:
            faults.append(f"capacity {key}: {error}")
    taints = device.get("taints") or ()
    if len(taints) > TAINTS_MAX:
        faults.append(f"{len(taints)} taints are more than {TAINTS_MAX}")
    for taint in taints:
        faults += _taint_faults(taint)
    return tuple(faults)


def faults_of_slice(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """All that is wrong with one `ResourceSlice.spec`, its devices included."""
    faults = list(_pool_name_faults(spec["pool"]["name"]))
    if not is_dns_subdomain(spec["driver"]) or len(spec["driver"]) > DOMAIN_MAX:
        faults.append(f"the driver's name {spec['driver']!r} is no DNS subdomain of at most {DOMAIN_MAX} bytes")
    selections = [key for key in ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection") if spec.get(key)]
    if len(selections) != 1:
        faults.append(f"exactly one node selection is needed, here are {len(selections)}")
    if "nodeName" in spec and not is_dns_subdomain(spec["nodeName"]):
        faults.append(f"the node's name {spec['nodeName']!r} is no DNS subdomain")
    devices, counters = spec.get("devices"), spec.get("sharedCounters")
    if devices is not None and counters is not None:
        faults.append("devices and shared counters belong in slices of their own")
    if len(counters or ()) > COUNTER_SETS_MAX:
        faults.append(f"{len(counters or ())} counter sets are more than {COUNTER_SETS_MAX}")
    if len(devices or ()) > DEVICES_MAX:
        faults.append(f"{len(devices or ())} devices are more than {DEVICES_MAX}")
    for device in devices or ():
        faults += [f"device {device['name']}: {fault}" for fault in faults_of_device(device)]
    return tuple(faults)


def faults_of_pool(specs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """All that is wrong with the slices of one pool, each by itself and together."""
    faults = [f"slice {index}: {fault}" for index, spec in enumerate(specs) for fault in faults_of_slice(spec)]
    names = Counter(device["name"] for spec in specs for device in spec.get("devices") or ())
    faults += [f"{count} devices are named {name}" for name, count in names.items() if count > 1]
    if len({spec["pool"]["name"] for spec in specs}) > 1:
        faults.append("the slices name different pools")
    faults += [
        f"slice {index}: resourceSliceCount is {spec['pool'].get('resourceSliceCount')}, the pool has {len(specs)}"
        for index, spec in enumerate(specs)
        if spec["pool"].get("resourceSliceCount") != len(specs)
    ]
    return tuple(faults)


def _pool_name_faults(name: str) -> tuple[str, ...]:
    if len(name.encode()) > POOL_NAME_MAX:
        remedy = "shorten the node's or the driver's name"
        return (f"the pool's name has {len(name.encode())} bytes, at most {POOL_NAME_MAX} are taken; {remedy}",)
    if not all(is_dns_subdomain(part) for part in name.split("/")):
        return (f"the pool's name {name!r} is not made of DNS subdomains with slashes between",)
    return ()


def _value_faults(value: Mapping[str, Any]) -> list[str]:
    if len(value) != 1:
        return [f"has {len(value)} values instead of one"]
    ((kind, content),) = value.items()
    match kind, content:
        case "bool", bool():
            return []
        case "int", int() if not isinstance(content, bool):
            return [] if -(2**63) <= content < 2**63 else [f"is out of range: {content}"]
        case (("string" | "version"), str()):
            if len(content.encode("utf-8", "surrogatepass")) > TEXT_MAX:
                return [f"is longer than {TEXT_MAX} bytes"]
            wrong = kind == "version" and not is_semver(content)
            return [f"is no semantic version: {content!r}"] if wrong else []
        case _:
            return [f"has a value that is no {kind}: {content!r}"]


def _taint_faults(taint: Mapping[str, Any]) -> list[str]:
    faults = [] if is_label_name(taint["key"]) else [f"taint key {taint['key']!r} is no label name"]
    if not is_label_value(taint.get("value", "")):
        faults.append(f"taint value {taint['value']!r} is no label value")
    if taint["effect"] not in _EFFECTS:
        faults.append(f"taint effect {taint['effect']!r} is none of {', '.join(_EFFECTS)}")
    return faults
