"""Container images written by hand as OCI archives: the test cluster has no registry and no container engine.

The same inputs give the same bytes. The format is the OCI image layout 1.0.0, packed as a tar.
"""

import gzip
import hashlib
import io
import json
import platform
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.places import ClusterError

PAUSE = "local.test/pause:1"
BUSYBOX = "docker.io/library/busybox:1.35"  # the name that examples/ use, so that they run here as they are
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Folder:
    """An empty folder in an image."""

    path: str


@dataclass(frozen=True, slots=True)
class File:
    """A file in an image."""

    path: str
    content: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link in an image."""

    path: str
    target: str


Entry = Folder | File | Link


def layer(entries: Iterable[Entry]) -> bytes:
    """One layer of an image as an uncompressed tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for entry in entries:
            info = tarfile.TarInfo(entry.path)
            match entry:
                case Folder():
                    info.type, info.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(info)
                case File(content=content, mode=mode):
                    info.mode, info.size = mode, len(content)
                    tar.addfile(info, io.BytesIO(content))
                case Link(target=target):
                    info.type, info.linkname, info.mode = tarfile.SYMTYPE, target, 0o777
                    tar.addfile(info)
    return buffer.getvalue()


def archive(
    reference: str, layers: Iterable[bytes], command: list[str], environment: Mapping[str, str] | None = None
) -> bytes:
    """An image under the name `reference` made of uncompressed `layers`, lowest first, as a tar for an import."""
    target = {"architecture": ARCHITECTURES.get(platform.machine(), platform.machine()), "os": "linux"}
    plain = list(layers)
    packed = [gzip.compress(data, compresslevel=1, mtime=0) for data in plain]
    variables = [f"{name}={value}" for name, value in (environment or {"PATH": "/bin"}).items()]
    configuration = _json(
        target
        | {
            "config": {"Env": variables, "Cmd": command},
            "rootfs": {"type": "layers", "diff_ids": [_digest(data) for data in plain]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor("application/vnd.oci.image.config.v1+json", configuration),
            "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar+gzip", data) for data in packed],
        }
    )
    names = {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference.rpartition(":")[2]}
    described = _descriptor("application/vnd.oci.image.manifest.v1+json", manifest)
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [described | {"platform": target, "annotations": names}],
    }
    blobs = {_digest(data).partition(":")[2]: data for data in (configuration, manifest, *packed)}
    return layer(
        [
            File("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'),
            File("index.json", _json(index)),
            *(File(f"blobs/sha256/{name}", data) for name, data in blobs.items()),
        ]
    )


def busybox_root(busybox: Path) -> bytes:
    """A layer with a shell and the small tools, from a statically linked busybox."""
    program = busybox.read_bytes()
    if b"/ld-linux" in program[:4096] or b"/ld-musl" in program[:4096]:  # its interpreter's path stands near the start
        raise ClusterError(f"{busybox} needs shared libraries; install a static one: apt-get install busybox-static")
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    return layer(
        [
            *(Folder(path) for path in ("bin", "dev", "etc", "proc", "sys", "tmp")),
            File("bin/busybox", program, 0o755),
            *(Link(f"bin/{name}", "busybox") for name in sorted(listed) if name != "busybox"),
        ]
    )


def write(folder: Path, busybox: Path) -> tuple[Path, ...]:
    """Writes the images that every cluster has: the one that holds a pod's namespaces open, and busybox."""
    folder.mkdir(parents=True, exist_ok=True)
    root = busybox_root(busybox)
    commands = {PAUSE: ["/bin/sleep", "2147483647"], BUSYBOX: ["/bin/sh"]}
    paths = []
    for reference, command in commands.items():
        path = folder / f"{reference.rpartition('/')[2].partition(':')[0]}.tar"
        path.write_bytes(archive(reference, [root], command))
        paths.append(path)
    return tuple(paths)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _descriptor(media_type: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(data), "size": len(data)}


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
