"""What a container sees of its CDI devices: what a container runtime would add to it.

Files of later directories win over those of earlier ones, as in tags.cncf.io/container-device-interface (pkg/cdi).
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubeletplugin.cdi.spec import Edits, edits_of, merged
from kubeletplugin.cdi.validate import problems


class NotResolved(Exception):  # noqa: N818  # what the runtime says
    """CDI devices that no file knows, so that the container cannot be made."""


@dataclass(frozen=True, slots=True)
class ContainerView:
    """What was added to one container."""

    container: str
    cdi_names: tuple[str, ...]
    """The CDI devices that the kubelet gave to the runtime."""
    edits: Edits
    """Environment, device nodes, mounts and hooks, in the order in which the runtime applies them."""


def view(container: str, names: Iterable[str], directories: Iterable[Path]) -> ContainerView:
    """Resolve the names as a runtime does. The edits of a file come once, before those of its devices.

    NotResolved for names that are in no valid file.
    """
    names = tuple(dict.fromkeys(names))
    wanted = {name.partition("=")[0] for name in names}
    devices, wrong = _devices(directories, wanted) if wanted else ({}, [])
    if missing := [name for name in names if name not in devices]:
        more = f" ({'; '.join(wrong)})" if wrong else ""
        raise NotResolved(f"CDI device injection failed: unresolvable CDI devices {', '.join(missing)}{more}")
    parts: list[Edits] = []
    begun: set[Path] = set()
    for name in names:
        path, common, own = devices[name]
        if path not in begun:
            begun.add(path)
            parts.append(common)
        parts.append(own)
    return ContainerView(container, names, merged(parts))


def _devices(directories: Iterable[Path], kinds: set[str]) -> tuple[dict[str, tuple[Path, Edits, Edits]], list[str]]:
    """File, common edits and own edits of each device of these kinds; and what is the matter with files that are no good."""
    found: dict[str, tuple[Path, Edits, Edits]] = {}
    wrong: list[str] = []
    for directory in directories:
        for path in sorted(directory.glob("*.json")):
            try:
                document = _document(path)
                if document["kind"] not in kinds:
                    continue
                common = edits_of(document.get("containerEdits") or {})
                for device in document["devices"]:
                    name = f"{document['kind']}={device['name']}"
                    found[name] = (path, common, edits_of(device.get("containerEdits") or {}))
            except FileNotFoundError:
                continue  # removed since the directory was listed
            except (OSError, ValueError) as error:
                wrong.append(f"{path}: {error}")
    return found, wrong


def _document(path: Path) -> dict[str, Any]:
    """A CDI file's content. Raises OSError or ValueError for what a runtime would not take."""
    document: Any = json.loads(path.read_text(encoding="utf-8"))
    if faults := problems(document):
        raise ValueError("; ".join(map(str, faults)))
    return dict(document)
