"""Builds the programs of the test cluster, once for each set of pinned versions.

Kubernetes, containerd and etcd are Go tool dependencies: the go.mod files beside this module pin them, in two modules,
because together they would raise each other's dependencies. runc and busybox come from Debian.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.places import ClusterError, cache

HERE = Path(__file__).parent
VERSION_VARIABLE = "LANEWISE_KUBERNETES"
"""Which Kubernetes, as `1.36`: one of those whose modules are pinned in a folder here. Unset or empty: the newest."""
FLAGS = ("-trimpath", "-mod=readonly", "-buildvcs=false")
LINKER_FLAGS = "-s -w"
KUBERNETES_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
CONTAINERD_PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr")
DEBIAN_PACKAGES = {"runc": "runc", "busybox": "busybox-static"}


@dataclass(frozen=True, slots=True)
class Compilation:
    """One call of the Go compiler: the module folder, the packages, and the file to write when it is not named so."""

    folder: Path
    packages: tuple[str, ...]
    linker_flags: str
    output: str = ""


@dataclass(frozen=True, slots=True)
class Binaries:
    """The programs of a cluster: a folder of built ones, and the two that the distribution provides."""

    built: Path
    runc: Path
    busybox: Path

    def __getitem__(self, program: str) -> str:
        return str(self.built / program)


def kubernetes_folder() -> Path:
    """The folder whose go.mod pins the Kubernetes that the environment asks for; ClusterError where there is none."""
    asked = os.environ.get(VERSION_VARIABLE, "")
    folders = {kubernetes_version(path).removeprefix("v").rpartition(".")[0]: path for path in HERE.glob("kubernetes*")}
    if asked and asked not in folders:
        raise ClusterError(f"there is no Kubernetes {asked} here; choose one of {', '.join(sorted(folders))}")
    return folders[asked] if asked else HERE / "kubernetes"


def kubernetes_version(folder: Path | None = None) -> str:
    """`v1.37.2`: what the go.mod of this folder requires, by default of the one that is asked for."""
    pins = (folder or kubernetes_folder()) / "go.mod"
    pinned = re.search(r"^\s*k8s\.io/kubernetes (v\S+)", pins.read_text(), re.MULTILINE)
    if pinned is None:
        raise ClusterError(f"{pins} does not require k8s.io/kubernetes; restore that file")
    return pinned[1]


def compilations() -> tuple[Compilation, ...]:
    """What is to be compiled."""
    kubernetes = kubernetes_folder()
    # kubectl refuses to talk to a server whose version it cannot parse, and `v0.0.0-master+$Format` is what one gets else
    stamp = f"{LINKER_FLAGS} -X k8s.io/component-base/version.gitVersion={kubernetes_version(kubernetes)}"
    containerd = tuple(f"github.com/containerd/containerd/v2/cmd/{name}" for name in CONTAINERD_PROGRAMS)
    return (
        Compilation(kubernetes, tuple(f"k8s.io/kubernetes/cmd/{name}" for name in KUBERNETES_PROGRAMS), stamp),
        Compilation(HERE / "runtime", containerd, LINKER_FLAGS),
        Compilation(HERE / "runtime", ("go.etcd.io/etcd/server/v3",), LINKER_FLAGS, output="etcd"),
    )


def key(work: tuple[Compilation, ...]) -> str:
    """What the built programs depend on, as a name: pinned modules, packages and flags."""
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for item in work:
        digest.update(repr((item.packages, item.linker_flags, item.output)).encode())
        for name in ("go.mod", "go.sum"):
            digest.update((item.folder / name).read_bytes())
    return digest.hexdigest()[:16]


def binaries() -> Binaries:
    """The programs, already built; ClusterError says how to build them when they are not."""
    built = cache() / key(compilations()) / "bin"
    if not built.is_dir():
        raise ClusterError(f"no cluster programs in {built}; build them once with: python -m tests.cluster build")
    return Binaries(built, **{name: _installed(name) for name in DEBIAN_PACKAGES})


def build(say: Callable[[str], None] = print) -> Binaries:
    """Builds what is missing and returns all of it; safe beside another builder, and does nothing when run again."""
    work = compilations()
    goal = cache() / key(work)
    goal.parent.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(goal.with_suffix(".lock")):
        install_from_debian(DEBIAN_PACKAGES, say)
        if not goal.is_dir():
            go = go_program()
            with tempfile.TemporaryDirectory(prefix=f"{goal.name}.", dir=goal.parent) as unfinished:
                folder = Path(unfinished) / "bin"
                folder.mkdir()
                for item in work:
                    say(f"building {', '.join([item.output] if item.output else map(_base, item.packages))}")
                    _compile(go, item, folder)
                Path(unfinished).chmod(0o755)
                Path(unfinished).rename(goal)  # whole or not at all
    return binaries()


def _compile(go: str, item: Compilation, folder: Path) -> None:
    output = f"{folder}/{item.output}"  # a path that ends in a slash is a folder to Go
    command = [go, "build", *FLAGS, "-ldflags", item.linker_flags, "-o", output, *item.packages]
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": ""}
    ended = subprocess.run(command, cwd=item.folder, env=environment)
    if ended.returncode:
        raise ClusterError(f"Go could not build {' '.join(item.packages)}; its own words are above")


def _base(package: str) -> str:
    return package.rsplit("/", 1)[-1]


def go_program() -> str:
    """The Go compiler; ClusterError says where to get it."""
    found = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if found is None:
        raise ClusterError("building this needs Go 1.26 or newer and there is no go in PATH: https://go.dev/dl/")
    return found


def _installed(program: str) -> Path:
    found = shutil.which(program)
    if found is None:
        raise ClusterError(f"{program} is not installed; install it with: apt-get install {DEBIAN_PACKAGES[program]}")
    return Path(found)


def install_from_debian(programs: Mapping[str, str], say: Callable[[str], None] = print) -> None:
    """Installs the packages of the programs that are not there, as root; ClusterError says how to do it by hand."""
    missing = [package for program, named in programs.items() if not shutil.which(program) for package in named.split()]
    if not missing:
        return
    remedy = f"install what is missing with: apt-get install {' '.join(missing)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ClusterError(f"the tests need {' and '.join(missing)}; {remedy}")
    say(f"installing {', '.join(missing)}")
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *missing]
    quiet: Mapping[str, str] = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (install, ["apt-get", "update"], install):  # the lists of a fresh image are empty
        if subprocess.run(command, env=quiet, stdout=subprocess.DEVNULL).returncode == 0 and command is install:
            return
    raise ClusterError(f"apt-get could not install {' and '.join(missing)}; {remedy}")


@contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Holds this lock file while the block runs: one builder at a time, whichever process it is in."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
