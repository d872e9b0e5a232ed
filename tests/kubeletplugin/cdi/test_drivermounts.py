"""Getting the driver's files into a container."""

from pathlib import Path

from kubeletplugin.cdi.driverfiles import DriverFiles, Library, Placed, find
from kubeletplugin.cdi.drivermounts import FILE_OPTIONS, SOCKET_OPTIONS, edits, find_hook
from kubeletplugin.cdi.roots import Root
from kubeletplugin.cdi.spec import Mount
from tests.support.driver_root import make_driver_root

VERSION = "580.105.08"
HOST = Path("/run/nvidia/driver")
HOOK = "/usr/bin/nvidia-cdi-hook"


def a_root(path: Path, **options: object) -> Root:
    return Root(make_driver_root(path, VERSION, sonames={"libcuda": "libcuda.so.1"}, **options), HOST)


def targets(root: Root, hook: str | None = None) -> dict[str, str]:
    return {mount.container_path: mount.host_path for mount in edits(find(root, VERSION), root, hook).mounts}


def test_without_hook_images_of_both_families_find_libcuda(tmp_path: Path):
    """Debian's linker looks in the triplet's directory, Red Hat's in /usr/lib64; no cache is renewed."""
    source = f"/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libcuda.so.{VERSION}"
    libraries = {
        target: host for target, host in targets(a_root(tmp_path)).items() if "/lib" in target and ".so" in target
    }
    assert libraries == {
        f"/usr/lib/x86_64-linux-gnu/libcuda.so.{VERSION}": source,
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1": source,
        "/usr/lib/x86_64-linux-gnu/libcuda.so": source,
        "/usr/lib64/libcuda.so.1": source,
        "/usr/lib64/libcuda.so": source,
    }
    assert edits(find(a_root(tmp_path), VERSION), a_root(tmp_path), None).hooks == ()


def test_without_hook_a_red_hat_host_serves_debian_images(tmp_path: Path):
    """The host's directory says nothing of the image's."""
    root = a_root(tmp_path, library_dir="usr/lib64")
    paths = [target for target in targets(root) if target.endswith("-linux-gnu/libcuda.so.1")]
    assert len(paths) == 1
    assert "/usr/lib64/libcuda.so.1" in targets(root)


def test_arm_has_its_own_triplet(tmp_path: Path):
    """GB200."""
    assert "/usr/lib/aarch64-linux-gnu/libcuda.so.1" in targets(
        a_root(tmp_path, library_dir="usr/lib/aarch64-linux-gnu")
    )


def test_with_hook_links_and_cache_are_made_in_the_container(tmp_path: Path):
    """Each file once, as the host has it; four hooks."""
    root = a_root(tmp_path)
    made = edits(find(root, VERSION), root, HOOK)
    directory = "/usr/lib/x86_64-linux-gnu"
    assert [mount.container_path for mount in made.mounts if ".so" in mount.container_path] == [
        f"{directory}/libcuda.so.{VERSION}"
    ]
    assert made.env == (f"NVIDIA_CTK_LIBCUDA_DIR={directory}",)
    assert [hook.args for hook in made.hooks] == [
        (
            "nvidia-cdi-hook", "create-symlinks",
            "--link", f"libcuda.so.{VERSION}::{directory}/libcuda.so.1",
            "--link", f"libcuda.so.1::{directory}/libcuda.so",
        ),
        ("nvidia-cdi-hook", "enable-cuda-compat", f"--host-driver-version={VERSION}"),
        ("nvidia-cdi-hook", "update-ldcache", "--folder", directory),
        ("nvidia-cdi-hook", "disable-device-node-modification"),
    ]  # fmt: skip
    assert {(hook.name, hook.path, hook.env) for hook in made.hooks} == {
        ("createContainer", "/usr/bin/nvidia-cdi-hook", ("NVIDIA_CTK_DEBUG=false",))
    }


def test_cache_covers_every_directory_of_libraries(tmp_path: Path):
    """vdpau's are beside the others."""
    libraries = (Library("/a/liba.so.1", "liba.so.1", ()), Library("/a/vdpau/libb.so.1", "vdpau/libb.so.1", ()))
    files = DriverFiles(VERSION, "/usr/lib64", libraries, (), (), ())
    (args,) = [hook.args for hook in edits(files, Root.same(tmp_path), HOOK).hooks if hook.args[1] == "update-ldcache"]
    assert args[2:] == ("--folder", "/usr/lib64", "--folder", "/usr/lib64/vdpau")


def test_sockets_are_mounted_writable(tmp_path: Path):
    """A nested container could not mount a read-only one on; programs and firmware are read-only."""
    files = DriverFiles(
        VERSION,
        "/usr/lib64",
        (),
        (Placed("/opt/nvidia-smi", "/usr/bin/nvidia-smi"),),
        (),
        (Placed("/run/s", "/run/s"),),
    )
    assert edits(files, Root(tmp_path, HOST), None).mounts == (
        Mount("/run/nvidia/driver/opt/nvidia-smi", "/usr/bin/nvidia-smi", FILE_OPTIONS),
        Mount("/run/nvidia/driver/run/s", "/run/s", SOCKET_OPTIONS),
    )
    assert "ro" not in SOCKET_OPTIONS


def test_two_libraries_with_one_soname_do_not_fight(tmp_path: Path):
    """The first keeps the name; a runtime would silently keep the last."""
    files = DriverFiles(
        VERSION,
        "/usr/lib64",
        tuple(Library(f"/usr/lib64/lib{name}.so.1.2", f"lib{name}.so.1.2", ("libx.so.1",)) for name in "ab"),
        (),
        (),
        (),
    )
    mounts = edits(files, Root.same(tmp_path), None).mounts
    assert len({mount.container_path for mount in mounts}) == len(mounts)
    assert {mount.host_path for mount in mounts if mount.container_path == "/usr/lib64/libx.so.1"} == {
        f"{tmp_path}/usr/lib64/liba.so.1.2"
    }


def test_hook_of_the_host_comes_first(tmp_path: Path):
    """Its path is the runtime's, not ours."""
    driver = a_root(tmp_path / "driver", hook=True)
    assert find_hook(None, driver) == "/run/nvidia/driver/usr/bin/nvidia-cdi-hook"
    host = Root(make_driver_root(tmp_path / "host", hook=True), Path("/"))
    assert find_hook(host, driver) == "/usr/bin/nvidia-cdi-hook"
    assert find_hook(None, a_root(tmp_path / "other")) is None
