"""How the driver's files get into a container, on a runtime that knows only CDI.

Two ways, because an image's linker looks in its cache, which nobody but a program run in the container can renew:

* with `nvidia-cdi-hook` on the host: the libraries are mounted where the host has them, and the hook makes the links
  and renews the cache. Right for every image.
* without: glibc also searches a few directories that need no cache, and which they are is built into the image's
  linker: /usr/lib/<triplet> in Debian's and Ubuntu's images, /usr/lib64 in those of RHEL and SUSE. The image is not known
  when the file is written, so the libraries are mounted in the first under all their names, and in the second under
  those that programs ask for. LD_LIBRARY_PATH would do it in one place, but would replace what the image sets.
"""

import platform
from collections.abc import Iterator

from kubeletplugin.cdi.driverfiles import DriverFiles, Library
from kubeletplugin.cdi.roots import Root
from kubeletplugin.cdi.spec import Edits, Hook, Mount

FILE_OPTIONS = ("ro", "nosuid", "nodev", "rbind", "rprivate")
SOCKET_OPTIONS = ("nosuid", "nodev", "rbind", "rprivate", "noexec")
"""Not read-only: containers inside the container could not mount it on (as nvidia-ctk 1.20)."""

_HOOK = "/usr/bin/nvidia-cdi-hook"
_RED_HAT_DIR = "/usr/lib64"


def find_hook(*roots: Root | None) -> str | None:
    """The toolkit's hook as the runtime sees it, from the first root that has it: the host's own, then the driver's."""
    for root in roots:
        path = root.resolve(_HOOK) if root is not None else None
        if root is not None and path is not None and root.at(path).is_file():
            return root.on_host(path)
    return None


def edits(files: DriverFiles, root: Root, hook: str | None) -> Edits:
    """Mounts of libraries, programs, firmware and sockets, with the hooks or the links that make them found."""
    mounts = list(_library_mounts(files, root, hook))
    mounts += [_file(root, placed.path, placed.target) for placed in (*files.binaries, *files.firmware, *files.configs)]
    mounts += [Mount(root.on_host(placed.path), placed.target, SOCKET_OPTIONS) for placed in files.sockets]
    # Two libraries may claim one name; a runtime would keep the last of them, we keep the first and say nothing twice.
    unique = {mount.container_path: mount for mount in reversed(mounts)}
    return Edits(
        env=(f"NVIDIA_CTK_LIBCUDA_DIR={files.library_dir}",) if hook else (),
        mounts=tuple(mount for mount in mounts if unique[mount.container_path] is mount),
        hooks=tuple(_hooks(files, hook)) if hook else (),
    )


def _library_mounts(files: DriverFiles, root: Root, hook: str | None) -> Iterator[Mount]:
    if hook is not None:
        for library in files.libraries:
            yield _file(root, library.path, f"{files.library_dir}/{library.name}")
        return
    for library in files.libraries:
        for name in (library.name, *library.links):
            yield _file(root, library.path, f"{_debian_dir(files)}/{name}")
    for library in files.libraries:
        for name in library.links or (library.name,):
            yield _file(root, library.path, f"{_RED_HAT_DIR}/{name}")


def _debian_dir(files: DriverFiles) -> str:
    """By the directory the libraries came from; by this machine's architecture where that says nothing (/usr/lib64)."""
    for architecture in ("x86_64", "aarch64"):
        if architecture in files.library_dir:
            return f"/usr/lib/{architecture}-linux-gnu"
    return f"/usr/lib/{platform.machine()}-linux-gnu"


def _hooks(files: DriverFiles, hook: str) -> Iterator[Hook]:
    links = [pair for library in files.libraries for pair in _links(files, library)]
    if links:
        yield _hook(hook, "create-symlinks", *(word for pair in links for word in ("--link", pair)))
    yield _hook(hook, "enable-cuda-compat", f"--host-driver-version={files.version}")
    # Which ldconfig is the host's, the hook finds out by itself: Ubuntu's is a shell script in front of the real one.
    yield _hook(hook, "update-ldcache", *(word for folder in _folders(files) for word in ("--folder", folder)))
    # Hides from the driver's library that it may make device nodes; without it nvidia-smi tries to, in the container.
    yield _hook(hook, "disable-device-node-modification")


def _folders(files: DriverFiles) -> tuple[str, ...]:
    """Where the libraries will be in the container, vdpau's with the rest."""
    paths = (f"{files.library_dir}/{library.name}" for library in files.libraries)
    return tuple(dict.fromkeys((files.library_dir, *(path.rpartition("/")[0] for path in paths))))


def _links(files: DriverFiles, library: Library) -> Iterator[str]:
    """`target::link`, the target beside the link; a further name points to the SONAME, as a distribution has it."""
    target = library.name
    for link in library.links:
        yield f"{target.rpartition('/')[2]}::{files.library_dir}/{link}"
        target = library.links[0]


def _hook(hook: str, *words: str) -> Hook:
    return Hook("createContainer", hook, ("nvidia-cdi-hook", *words), ("NVIDIA_CTK_DEBUG=false",))


def _file(root: Root, path: str, target: str) -> Mount:
    return Mount(root.on_host(path), target, FILE_OPTIONS)
