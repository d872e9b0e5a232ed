"""The names in and of our CDI files.

Each carries the claim's UID: two claims on one device have two files and two devices, and neither release touches the
other (Case F8).
"""

import re
from dataclasses import dataclass

from api.refusals import BadInput, Refused

CLASS = "claim"

_DRIVER = re.compile(r"[a-z]([-a-z0-9.]*[a-z0-9])?")
"""What is both a DNS subdomain in shape and a CDI vendor, which must begin with a letter."""
_COMPONENT = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_COMPONENT_MAX = 128
"""Kubernetes' UIDs have 36 characters; a file name has 255 bytes, of which driver, suffix and a temporary's tail need some."""


@dataclass(frozen=True, slots=True)
class BadName:
    """A name from outside cannot be part of a file name and of a CDI device name."""

    field: str
    text: str

    @property
    def what(self) -> str:
        return f"{self.field} {self.text[:64]!r} cannot name a CDI device: letters, digits and -._ between letters or digits"

    @property
    def remedy(self) -> str:
        return "Kubernetes gives no such name; look at who called the plugin"


def kind(driver: str) -> str:
    """`<driver>/claim`. A driver whose name begins with a digit is Refused: it is a DNS subdomain, but no CDI vendor."""
    if _DRIVER.fullmatch(driver) is None:
        problem = f"{driver!r} is no CDI vendor, which begins with a letter and ends with a letter or digit"
        raise Refused(BadInput("--driver-name", problem, "use a name such as gpu.lanewise.dev"))
    return f"{driver}/{CLASS}"


def device_name(uid: str, device: str, share: str | None = None) -> str:
    """`<claim UID>-<device>`, with `-<share>` behind it for a shared device: never a bare index, never equal in two claims."""
    parts = [_component("claim UID", uid), _component("device", device)]
    if share is not None:
        parts.append(_component("share ID", share))
    return "-".join(parts)


def cdi_id(driver: str, uid: str, device: str, share: str | None = None) -> str:
    """What the kubelet hands to the runtime: `<driver>/claim=<device name>`."""
    return f"{kind(driver)}={device_name(uid, device, share)}"


def file_name(driver: str, uid: str) -> str:
    """`<driver>-claim_<uid>.json`; runtimes read nothing but `.json` and `.yaml`."""
    return f"{file_prefix(driver)}{_component('claim UID', uid)}.json"


def file_prefix(driver: str) -> str:
    """What all files of this driver begin with; no driver's name has an underscore, so no other driver's do."""
    return f"{driver}-{CLASS}_"


def uid_of(driver: str, name: str) -> str | None:
    """The claim that a file is for, None for a file that is not of this driver."""
    prefix = file_prefix(driver)
    if not (name.startswith(prefix) and name.endswith(".json")):
        return None
    uid = name[len(prefix) : -len(".json")]
    return uid if is_component(uid) else None


def is_component(text: str) -> bool:
    """Whether it may be a part of file names and CDI device names: no separator, no leading dot, not too long."""
    return len(text) <= _COMPONENT_MAX and _COMPONENT.fullmatch(text) is not None


def _component(field: str, text: str) -> str:
    if not is_component(text):
        raise Refused(BadName(field, text))
    return text
