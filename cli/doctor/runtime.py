"""Whether the node's container runtime reads CDI files, and from our directory.

It is asked on its socket, which tells what is in force. Where it does not answer, its configuration files are read, which
tell what will be after its next start.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from api.versions import normalise
from cli.doctor.findings import Finding, failure, ok, warning
from cli.doctor.mounts import names_in
from kubeletplugin.sockets import cri

ANSWER_SECONDS = 5.0
SOCKETS = ("run/containerd/containerd.sock", "run/crio/crio.sock", "run/k3s/containerd/containerd.sock")
"""Where runtimes listen, below the host's root."""
_CONTAINERD_FILES = (
    "etc/containerd/config.toml",
    "var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "var/lib/rancher/rke2/agent/etc/containerd/config.toml",
)
_CRIO_FILES = ("etc/crio/crio.conf", "etc/crio/crio.conf.d")
_CONTAINERD_SECTIONS = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri")
"""Of configuration version 3 and 2."""
_DEFAULT_DIRS = ("/etc/cdi", "/var/run/cdi")
_FIRST = {"containerd": (1, 7), "cri-o": (1, 23)}
"""The first that reads CDI files at all: containerd 1.7 and CRI-O 1.23 have CDI in their release notes."""
_ALWAYS_ON = (2, 4)
"""From here on containerd has no enable_cdi any more (its RELEASES.md, "Deprecated config properties")."""
_TESTED = {"containerd": (2, 0), "cri-o": (1, 28)}
"""From here on CDI is on by itself and takes what Lanewise writes."""


@dataclass(frozen=True, slots=True)
class RuntimeSeen:
    """What was found out of the runtime; None for what was not."""

    name: str | None = None
    version: str | None = None
    cdi_enabled: bool | None = None
    cdi_dirs: tuple[str, ...] | None = None
    source: str = ""
    """Where the last two were read."""
    silent: str = ""
    """Why its socket told nothing, a sentence."""
    problem: str = ""
    """Why its configuration file tells nothing, a sentence."""


def look(host_root: Path, socket: Path | None, said_by_node: str) -> RuntimeSeen:
    """Ask the runtime at the given socket, else at the first that is there, else read its files below the host's root.

    `said_by_node` is the Node's `containerRuntimeVersion`, such as `containerd://2.1.4`, or empty.
    """
    name, _, version = said_by_node.partition("://")
    sockets = [socket] if socket is not None else [path for each in SOCKETS if (path := host_root / each).is_socket()]
    silent = "no socket of a known runtime is there" if not sockets else ""
    for path in sockets:
        told = cri.ask(path, ANSWER_SECONDS)
        if isinstance(told, str):
            silent = told
            continue
        enabled, dirs = told.config.get("enableCDI"), told.config.get("cdiSpecDirs")
        if _is_always_on(told.name, told.version):
            enabled = True
        if isinstance(enabled, bool) and told.config:
            return RuntimeSeen(told.name, told.version, enabled, _dirs(dirs), f"{told.name}'s answer on {path}")
        name, version, silent = told.name, told.version, ""
        break
    return _from_files(host_root, name or None, version or None, silent)


def _from_files(host_root: Path, name: str | None, version: str | None, silent: str) -> RuntimeSeen:
    crio = name == "cri-o" or (name is None and (host_root / _CRIO_FILES[0]).exists())
    seen = RuntimeSeen(name or ("cri-o" if crio else None), version, silent=silent)
    try:
        return _crio(host_root, seen) if crio else _containerd(host_root, seen)
    except (OSError, ValueError, RecursionError, IndexError) as error:  # the last by Path.glob("") of Python 3.11
        problem = f"its configuration cannot be read: {error}"
        return RuntimeSeen(seen.name, version, silent=silent, problem=problem)


def _containerd(host_root: Path, seen: RuntimeSeen) -> RuntimeSeen:
    file = next((host_root / each for each in _CONTAINERD_FILES if (host_root / each).is_file()), None)
    sections: dict[str, Any] = {}
    if file is not None:
        for each in (file, *_imports(host_root, file)):
            plugins = tomllib.loads(each.read_text(encoding="utf-8")).get("plugins")
            for section in _CONTAINERD_SECTIONS:
                found = plugins.get(section) if isinstance(plugins, dict) else None
                sections |= found if isinstance(found, dict) else {}
    enabled, dirs = sections.get("enable_cdi"), sections.get("cdi_spec_dirs")
    source = f"{file}" if file is not None else "containerd's defaults"
    number = _number(seen.version)
    if _is_always_on("containerd", seen.version):
        enabled = True
    elif not isinstance(enabled, bool):
        enabled = number >= _TESTED["containerd"] if number is not None else None  # off by default in 1.7, on in 2.0
    return RuntimeSeen(seen.name or "containerd", seen.version, enabled, _dirs(dirs), source, seen.silent)


def _imports(host_root: Path, file: Path) -> Iterator[Path]:
    patterns = tomllib.loads(file.read_text(encoding="utf-8")).get("imports") or []
    if not isinstance(patterns, list):
        raise ValueError("imports is no list")  # noqa: TRY004  # of the file, not of a caller
    for pattern in patterns:
        if isinstance(pattern, str):
            path = Path(pattern)
            root = host_root if path.is_absolute() else file.parent
            yield from sorted(found for found in root.glob(str(path).lstrip("/")) if found != file)


def _crio(host_root: Path, seen: RuntimeSeen) -> RuntimeSeen:
    main, folder = (host_root / each for each in _CRIO_FILES)
    files = [*([main] if main.is_file() else []), *(folder / name for name in sorted(names_in(folder)))]
    dirs: Any = None
    for file in files:
        crio = tomllib.loads(file.read_text(encoding="utf-8")).get("crio")
        runtime = crio.get("runtime") if isinstance(crio, dict) else None
        dirs = runtime.get("cdi_spec_dirs", dirs) if isinstance(runtime, dict) else dirs
    source = str(main) if files else "CRI-O's defaults"
    return RuntimeSeen("cri-o", seen.version, cdi_enabled=True, cdi_dirs=_dirs(dirs), source=source, silent=seen.silent)


def _dirs(value: Any) -> tuple[str, ...]:
    return tuple(str(each) for each in value) if isinstance(value, list) and value else _DEFAULT_DIRS


def judge(seen: RuntimeSeen, host_cdi_dir: Path) -> Iterator[Finding]:
    """What is to be said of it; `host_cdi_dir` is the plugin's directory as the runtime sees it."""
    yield _version(seen)
    if seen.problem:
        yield warning("runtime cdi", f"not known: {seen.problem}", "see that enable_cdi is not false in it")
        return
    at = f"({seen.source}{f'; {seen.silent}' if seen.silent else ''})"
    match seen.cdi_enabled:
        case None:
            remedy = "from containerd 2.0 on it is on; in 1.7 set enable_cdi = true in the section of its CRI plugin"
            yield warning("runtime cdi", f"it is not known whether CDI is on {at}", remedy)
            return
        case False:
            remedy = "set enable_cdi = true in the section of its CRI plugin, and restart it"
            yield failure("runtime cdi", f"CDI is off {at}", remedy)
            return
        case True:
            dirs = seen.cdi_dirs or _DEFAULT_DIRS
            if _plain(host_cdi_dir) in map(_plain, map(Path, dirs)):
                yield ok("runtime cdi", f"CDI is on and reads {host_cdi_dir} {at}")
                return
            what = f"CDI files are read from {', '.join(dirs)}, and not from {host_cdi_dir} {at}"
            yield failure("runtime cdi", what, f"add {host_cdi_dir} to its cdi_spec_dirs, or give the plugin --cdi-dir")


def _version(seen: RuntimeSeen) -> Finding:
    number = _number(seen.version)
    if seen.name is None or number is None:
        remedy = "run it as root on the node, or name the runtime's socket with --runtime-socket"
        return warning("runtime", f"its version is not known: {seen.silent or 'it does not say'}", remedy)
    told = f"{seen.name} {seen.version}"
    if seen.name not in _FIRST:
        return warning(
            "runtime", f"{told} is not known to us", "see that it reads CDI files from the plugin's directory"
        )
    needed = f"{seen.name} {'.'.join(map(str, _TESTED[seen.name]))}"
    if number < _FIRST[seen.name]:
        return failure("runtime", f"{told} cannot read CDI files", f"use {needed} or newer")
    if number < _TESTED[seen.name]:
        return warning("runtime", f"{told} is older than what Lanewise is made for", f"use {needed} or newer")
    return ok("runtime", told)


def _is_always_on(name: str, version: str | None) -> bool:
    number = _number(version)
    return name == "containerd" and number is not None and number >= _ALWAYS_ON


def _number(version: str | None) -> tuple[int, int] | None:
    plain = normalise(version) if version else None
    if plain is None:
        return None
    major, minor, _ = plain.split(".")
    return int(major), int(minor)


def _plain(directory: Path) -> str:
    """/var/run is a link to /run on every distribution that systemd runs on (file-hierarchy(7))."""
    text = str(directory)
    return text.removeprefix("/var") if text.startswith("/var/run/") else text
