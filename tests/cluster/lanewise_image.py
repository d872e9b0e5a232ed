"""An image of Lanewise without a container engine: Debian's own Python, and what `deploy/image/install` puts beside it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.cluster.images import archive
from tests.cluster.places import ClusterError

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "local.test/lanewise:0.1.0"
PACKAGES = ("python3-minimal", "libpython3.11-stdlib", "libstdc++6")
"""As in deploy/Dockerfile."""


def build(folder: Path) -> Path:
    """The image as an OCI archive in `folder`; needs apt and its package index."""
    root = folder / "root"
    root.mkdir(parents=True)
    for package in _download(folder / "packages"):
        _run("dpkg-deb", "--extract", str(package), str(root))
    _run(str(ROOT / "deploy/image/install"), sys.executable, str(root / "opt/lanewise"))
    layer = folder / "root.tar"
    _run("tar", "--create", f"--file={layer}", f"--directory={root}", "--owner=0", "--group=0", "--numeric-owner", ".")
    image = folder / "lanewise.tar"
    environment = {"PATH": "/opt/lanewise/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    image.write_bytes(archive(IMAGE, [layer.read_bytes()], ["lanewise", "--help"], environment))
    return image


def _download(folder: Path) -> list[Path]:
    """The packages and all that they need, as if nothing were installed."""
    (folder / "partial").mkdir(parents=True)
    status = folder / "status"
    status.touch()
    options = {
        "Dir::State::status": status,
        "Dir::Cache::archives": folder,
        "Debug::NoLocking": 1,
        "APT::Sandbox::User": "root",
    }
    flags = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    download = ("apt-get", "-y", "-qq", "--download-only", "--no-install-recommends", *flags, "install", *PACKAGES)
    try:
        _run(*download)
    except ClusterError:  # the lists of a fresh machine are empty, those of an old one name packages that are gone
        _run("apt-get", "-qq", "update")
        _run(*download)
    return sorted(folder.glob("*.deb"))


def _run(*command: str) -> None:
    ended = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    )
    if ended.returncode:
        raise ClusterError(f"{' '.join(command[:2])}: {ended.stderr.strip()[-500:]}")
