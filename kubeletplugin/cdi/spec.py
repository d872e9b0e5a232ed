"""What a CDI file says.

Values only: whether a document may be written is `kubeletplugin.cdi.validate`, where it goes `kubeletplugin.cdi.files`.
The format is that of tags.cncf.io/container-device-interface, specification 1.1.0.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
"""All that exist, oldest first. A runtime refuses versions younger than its library, so the lowest that fits is written."""

_FLOOR = "0.3.0"
_TO_ESCAPE = re.compile("[\x7f-\uffff]")


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device node made in the container."""

    path: str
    """In the container."""
    host_path: str | None = None
    """Where the runtime finds it; None where that is `path` too."""
    type: str | None = None
    """`c`, `b`, `u` or `p`; None lets the runtime look at the host's node, and so for the numbers."""
    major: int | None = None
    minor: int | None = None
    permissions: str | None = None
    """For the device cgroup; the runtime takes None for `rwm`."""
    file_mode: int | None = None
    uid: int | None = None
    gid: int | None = None


@dataclass(frozen=True, slots=True)
class Mount:
    """A bind mount, or with `type` another one."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str | None = None


@dataclass(frozen=True, slots=True)
class Hook:
    """A program that the runtime runs, on the host, while it makes the container."""

    name: str
    """When: `createContainer` and so on."""
    path: str
    args: tuple[str, ...] = ()
    """With the program's name first, as for execve."""
    env: tuple[str, ...] = ()
    timeout: int | None = None
    """Seconds."""


@dataclass(frozen=True, slots=True)
class Edits:
    """What is changed in a container."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    additional_gids: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is changed: a device without edits makes its whole file useless (Case F3)."""
        return bool(self.env or self.device_nodes or self.mounts or self.hooks or self.additional_gids)


@dataclass(frozen=True, slots=True)
class CdiDevice:
    """A device of the file, under the name that follows the `=` of its id."""

    name: str
    edits: Edits


@dataclass(frozen=True, slots=True)
class Spec:
    """One CDI file."""

    kind: str
    """`vendor/class`"""
    devices: tuple[CdiDevice, ...]
    edits: Edits = Edits()
    """Applied once, whichever of the devices a container gets."""


def merged(parts: Iterable[Edits]) -> Edits:
    """All of them in one, in this order, said once where several say the same."""
    parts = tuple(parts)
    return Edits(
        env=tuple(dict.fromkeys(item for part in parts for item in part.env)),
        device_nodes=tuple(dict.fromkeys(item for part in parts for item in part.device_nodes)),
        mounts=tuple(dict.fromkeys(item for part in parts for item in part.mounts)),
        hooks=tuple(dict.fromkeys(item for part in parts for item in part.hooks)),
        additional_gids=tuple(dict.fromkeys(item for part in parts for item in part.additional_gids)),
    )


def to_document(spec: Spec) -> dict[str, Any]:
    """The spec as parsed JSON, at the lowest version that its fields and names need."""
    document: dict[str, Any] = {
        "cdiVersion": _FLOOR,
        "kind": spec.kind,
        "devices": [{"name": device.name, "containerEdits": _edits_document(device.edits)} for device in spec.devices],
    }
    if spec.edits:
        document["containerEdits"] = _edits_document(spec.edits)
    document["cdiVersion"] = minimum_version(document)
    return document


def encode(document: Mapping[str, Any]) -> bytes:
    """The bytes of a file: equal documents give equal bytes. JSON without indentation, which costs a fifth of it.

    Runtimes read it with a parser of YAML, which is stricter than JSON in two places: what is no printable character must be
    written as an escape, and what lies beyond 16 bits must not, for YAML knows no surrogate pairs.
    """
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    if not text.isascii() or "\x7f" in text:
        text = _TO_ESCAPE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return text.encode() + b"\n"


def minimum_version(document: Mapping[str, Any]) -> str:
    """The lowest `cdiVersion` that a runtime accepts for this document; the one it states itself is not looked at.

    Below it the whole file is refused, with every device in it (seen with containerd 2.4). The rules are those of
    `MinimumRequiredVersion` in the reference library. Parts of another shape than CDI's ask for nothing.
    """
    needed = [_FLOOR]
    kind = document.get("kind")
    if document.get("annotations") or (isinstance(kind, str) and "." in kind.partition("/")[2]):
        needed.append("0.6.0")
    for device in _objects(document.get("devices")):
        name = device.get("name")
        if isinstance(name, str) and name[:1].isdigit():
            needed.append("0.5.0")
        if device.get("annotations"):
            needed.append("0.6.0")
        needed.extend(_needs(device.get("containerEdits")))
    needed.extend(_needs(document.get("containerEdits")))
    return max(needed, key=VERSIONS.index)


def edits_of(document: Mapping[str, Any]) -> Edits:
    """The edits in a `containerEdits` object that `validate.problems` had nothing to say about.

    Raises ValueError for the two kinds of edits that no GPU needs and `Edits` does not know, `intelRdt` and `netDevices`.
    """
    for field in ("intelRdt", "netDevices"):
        if document.get(field):
            raise ValueError(f"{field} is nothing a GPU needs")
    return Edits(
        env=tuple(document.get("env") or ()),
        device_nodes=tuple(
            DeviceNode(
                path=node["path"],
                host_path=node.get("hostPath") if node.get("hostPath") != node["path"] else None,
                type=node.get("type") or None,
                major=node.get("major"),
                minor=node.get("minor"),
                permissions=node.get("permissions") or None,
                file_mode=node.get("fileMode"),
                uid=node.get("uid"),
                gid=node.get("gid"),
            )
            for node in document.get("deviceNodes") or ()
        ),
        mounts=tuple(
            Mount(
                mount["hostPath"], mount["containerPath"], tuple(mount.get("options") or ()), mount.get("type") or None
            )
            for mount in document.get("mounts") or ()
        ),
        hooks=tuple(
            Hook(
                hook["hookName"],
                hook["path"],
                tuple(hook.get("args") or ()),
                tuple(hook.get("env") or ()),
                hook.get("timeout"),
            )
            for hook in document.get("hooks") or ()
        ),
        additional_gids=tuple(document.get("additionalGids") or ()),
    )


def _edits_document(edits: Edits) -> dict[str, Any]:
    document = {
        "env": list(edits.env),
        "deviceNodes": [_node_document(node) for node in edits.device_nodes],
        "mounts": [
            _without_empty(
                {
                    "hostPath": mount.host_path,
                    "containerPath": mount.container_path,
                    "options": list(mount.options),
                    "type": mount.type,
                }
            )
            for mount in edits.mounts
        ],
        "hooks": [
            _without_empty(
                {
                    "hookName": hook.name,
                    "path": hook.path,
                    "args": list(hook.args),
                    "env": list(hook.env),
                    "timeout": hook.timeout,
                }
            )
            for hook in edits.hooks
        ],
        "additionalGids": list(edits.additional_gids),
    }
    return _without_empty(document)


def _node_document(node: DeviceNode) -> dict[str, Any]:
    return _without_empty(
        {
            "path": node.path,
            "hostPath": node.host_path if node.host_path != node.path else None,
            "type": node.type,
            "major": node.major,
            "minor": node.minor,
            "fileMode": node.file_mode,
            "permissions": node.permissions,
            "uid": node.uid,
            "gid": node.gid,
        }
    )


def _without_empty(document: dict[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in document.items() if value is not None and value != []}


def _needs(edits: Any) -> Iterator[str]:
    if not isinstance(edits, Mapping):
        return
    if any(mount.get("type") for mount in _objects(edits.get("mounts"))):
        yield "0.4.0"
    if any(node.get("hostPath") for node in _objects(edits.get("deviceNodes"))):
        yield "0.5.0"
    if edits.get("additionalGids") or edits.get("intelRdt") is not None:
        yield "0.7.0"
    rdt = edits.get("intelRdt")
    if edits.get("netDevices") or (
        isinstance(rdt, Mapping) and (rdt.get("schemata") is not None or rdt.get("enableMonitoring"))
    ):
        yield "1.1.0"


def _objects(items: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(items, (list, tuple)):
        yield from (item for item in items if isinstance(item, Mapping))
