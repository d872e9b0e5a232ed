"""Whether the directory of CDI files can be used, and what lies in it."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cli.doctor.findings import Finding, failure, ok, plural, warning
from cli.doctor.mounts import Mount, find, names_in
from cli.doctor.sockets import SEE_PLUGIN
from kubeletplugin.cdi.naming import uid_of
from kubeletplugin.cdi.validate import problems
from kubeletplugin.disk import content_of

READ_MAX = 4 << 20
"""Bytes of a CDI file; those of a node with eight GPUs have some ten thousand."""


class _Alias(yaml.YAMLError):
    pass


class _Loader(yaml.SafeLoader):
    """Without aliases, by which a few lines become more than fits into memory when they are told."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise _Alias
        return super().compose_node(parent, index)


@dataclass(frozen=True, slots=True)
class CdiFile:
    """A file of the CDI directory."""

    name: str
    claim: str | None
    """The UID of the claim that it is for; None for somebody else's file."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class CdiDirectory:
    """What was seen of it."""

    path: Path
    is_there: bool
    is_writable: bool
    mount: Mount | None
    files: tuple[CdiFile, ...] = ()
    records: frozenset[str] = frozenset()
    """UIDs of the claims that the plugin has prepared."""


def look(driver: str, cdi_dir: Path, plugin_dir: Path, proc_root: Path) -> CdiDirectory:
    """Look at the directory and read all its files."""
    names = sorted(name for name in names_in(cdi_dir) if name.endswith((".json", ".yaml")))
    return CdiDirectory(
        path=cdi_dir,
        is_there=cdi_dir.is_dir(),
        is_writable=os.access(cdi_dir, os.W_OK | os.X_OK),
        mount=find(cdi_dir, proc_root),
        files=tuple(CdiFile(name, uid_of(driver, name), _problem(cdi_dir / name)) for name in names),
        records=frozenset(
            name.removesuffix(".json") for name in names_in(plugin_dir / "claims") if name.endswith(".json")
        ),
    )


def judge(seen: CdiDirectory) -> Iterator[Finding]:
    """What is to be said of it."""
    if not seen.is_there:
        yield failure("cdi directory", f"{seen.path} is not there", f"the plugin makes it when it starts; {SEE_PLUGIN}")
        return
    where = f" (on {seen.mount.kind})" if seen.mount is not None else ""
    if not seen.is_writable or (seen.mount is not None and seen.mount.read_only):
        remedy = "see that the directory is on a file system that can be written to; run this as root"
        yield failure("cdi directory", f"{seen.path}{where} cannot be written to", remedy)
    else:
        yield ok("cdi directory", f"{seen.path}{where} can be written to")
    ours = [file for file in seen.files if file.claim is not None]
    bad = [file for file in seen.files if file.problem]
    for file in bad:
        if file.claim is not None:
            remedy = "the plugin writes it anew within a minute; if it stays so, see the plugin's log"
            yield failure("cdi files", f"{file.name}: {file.problem}", remedy)
        else:
            remedy = "it is not ours: mend or remove it, since runtimes refuse all devices of such a file"
            yield warning("cdi files", f"{file.name}: {file.problem}", remedy)
    for file in ours:
        if file.claim not in seen.records:
            remedy = (
                "the plugin removes it within a minute; if it does not run, remove the file when no pod uses the claim"
            )
            yield warning("cdi files", f"{file.name} is for a claim that is not prepared here", remedy)
    without = sorted(seen.records - {file.claim for file in ours})
    for uid in without:
        remedy = "the plugin writes it within a minute; if it does not run, containers of the pod cannot be restarted"
        yield warning("cdi files", f"claim {uid} is prepared and has no file", remedy)
    if not bad and len(ours) == len(seen.records) and not without:
        others = plural(len(seen.files) - len(ours), "file")
        yield ok("cdi files", f"{plural(len(ours), 'file')} of ours for as many claims, {others} of others, all valid")


def _problem(path: Path) -> str:
    """What keeps a runtime from using the file; empty when nothing does."""
    try:
        size = path.stat().st_size
        if size > READ_MAX:
            return f"has {-(-size // 2**20)} MiB: it was not read"
        content = content_of(path)
        document = json.loads(content) if path.suffix == ".json" else yaml.load(content, Loader=_Loader)  # noqa: S506  # a SafeLoader
    except FileNotFoundError:
        return ""  # gone in this moment
    except OSError as error:
        return error.strerror or str(error)
    except _Alias:
        return "has YAML aliases, which are not read"
    except (ValueError, RecursionError, LookupError, AttributeError, yaml.YAMLError):  # PyYAML checks no explicit tags
        return f"is no {path.suffix[1:].upper()}"
    return "; ".join(map(str, problems(document)))
