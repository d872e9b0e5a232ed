"""Where in a cluster's folder each thing lies, as seen from the host and from the node's mount namespace.

The node's programs (containerd, kubelet, containers) keep their usual paths: a private mount namespace shows folders of
the cluster in place of the host's `/run`, `/var/lib` and `/var/log`, so that they write nothing outside.
"""

from dataclasses import dataclass
from pathlib import Path

from tests.cluster.places import ClusterError

SHOWN_IN_NAMESPACE = ("/run", "/var/lib", "/var/log")


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of the cluster in the folder `dir`; all are those of the host."""

    dir: Path

    @property
    def pki(self) -> Path:
        return self.dir / "pki"

    @property
    def configuration(self) -> Path:
        return self.dir / "conf"

    @property
    def images(self) -> Path:
        return self.dir / "images"

    @property
    def etcd_data(self) -> Path:
        return self.dir / "etcd"

    @property
    def host(self) -> Path:
        """What the namespace shows as `/run`, `/var/lib` and `/var/log` lies below, under these names."""
        return self.dir / "host"

    @property
    def kubelet(self) -> Path:
        """`/var/lib/kubelet`; near the top, because a socket's path may have no more than 107 bytes."""
        return self.dir / "kubelet"

    @property
    def cdi(self) -> Path:
        """`/var/run/cdi`, the only folder in which containerd looks for CDI files."""
        return self.dir / "cdi"

    @property
    def containerd_socket(self) -> Path:
        return self.host / "run/containerd/containerd.sock"

    @property
    def namespace_ready(self) -> Path:
        """Appears when the mount namespace is set up."""
        return self.host / "run/namespace-ready"

    @property
    def temporary(self) -> Path:
        return self.dir / "tmp"

    @property
    def home(self) -> Path:
        return self.dir / "home"

    @property
    def settings(self) -> Path:
        """What was chosen when the cluster was made; its presence marks a folder as a cluster's."""
        return self.dir / "cluster.json"

    def make_folders(self) -> None:
        """Makes all folders that the programs expect; safe to repeat."""
        plugins = (self.kubelet / "plugins", self.kubelet / "plugins_registry")
        shown = tuple(self.host / path.lstrip("/") for path in SHOWN_IN_NAMESPACE)
        below = (self.host / "run/cdi", self.host / "var/lib/kubelet")
        for path in (self.configuration, self.cdi, self.temporary, self.home, *plugins, *shown, *below):
            path.mkdir(parents=True, exist_ok=True)


def why_unusable(folder: Path) -> ClusterError | None:
    """Why no cluster can live in `folder`: other things do, or the node would not see it behind its own folders."""
    for hidden in map(Path, SHOWN_IN_NAMESPACE):
        if folder.resolve().is_relative_to(hidden.resolve()):
            return ClusterError(f"{folder} is under {hidden}, which the test node replaces; choose another folder")
    if folder.exists() and any(folder.iterdir()) and not Layout(folder).settings.exists():
        return ClusterError(f"{folder} holds something that is no cluster; choose another folder")
    return None
