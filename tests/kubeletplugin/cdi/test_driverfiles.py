"""Finding a driver's files."""

import os
import shutil
import socket
from pathlib import Path

import pytest

from api.refusals import Refused
from kubeletplugin.cdi.driverfiles import DriverFiles, DriverFilesCache, Library, Placed, find
from kubeletplugin.cdi.roots import Root
from tests.support.driver_root import SONAMES, elf, make_driver_root

VERSION = "580.105.08"
UBUNTU = "/usr/lib/x86_64-linux-gnu"


def found(path: Path, version: str | None = VERSION) -> DriverFiles:
    return find(Root.same(path), version)


def names(files: DriverFiles) -> list[str]:
    return [library.name for library in files.libraries]


def test_every_library_of_the_version_is_found_with_its_names(tmp_path: Path):
    """SONAMEs from the files themselves, libcuda.so among the links."""
    files = found(make_driver_root(tmp_path, VERSION))
    assert files.library_dir == UBUNTU
    assert names(files) == [f"{name}.so.{VERSION}" for name in sorted(SONAMES)]
    assert files.libraries[0] == Library(
        f"{UBUNTU}/libcuda.so.{VERSION}", f"libcuda.so.{VERSION}", ("libcuda.so.1", "libcuda.so")
    )
    assert {library.name.partition(".")[0]: library.links[0] for library in files.libraries} == dict(SONAMES)


def test_programs_and_firmware_are_found(tmp_path: Path):
    """Each where the image looks for it."""
    files = found(make_driver_root(tmp_path, VERSION))
    assert files.binaries == (
        Placed("/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi"),
        Placed("/usr/bin/nvidia-persistenced", "/usr/bin/nvidia-persistenced"),
    )
    assert files.firmware == tuple(
        Placed(f"/lib/firmware/nvidia/{VERSION}/{name}", f"/lib/firmware/nvidia/{VERSION}/{name}")
        for name in ("gsp_ga10x.bin", "gsp_tu10x.bin")
    )


def test_opencl_is_told_of_its_library(tmp_path: Path):
    """Its loader goes by a file in /etc, wherever the distribution has it; one that comes later is seen."""
    cache = DriverFilesCache(Root.same(make_driver_root(tmp_path, VERSION)))
    assert cache.files(VERSION).configs == ()
    path = tmp_path / "usr/share/OpenCL/vendors/nvidia.icd"
    path.parent.mkdir(parents=True)
    path.write_text("libnvidia-opencl.so.1\n")
    assert cache.files(VERSION).configs == (
        Placed("/usr/share/OpenCL/vendors/nvidia.icd", "/etc/OpenCL/vendors/nvidia.icd"),
    )


def test_only_real_sockets_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """persistenced's is there, fabricmanager's is a left-over file."""
    make_driver_root(tmp_path, VERSION)
    for name in ("nvidia-persistenced", "nvidia-fabricmanager"):
        (tmp_path / "run" / name).mkdir(parents=True)
    (tmp_path / "run/nvidia-fabricmanager/socket").write_text("")
    monkeypatch.chdir(tmp_path / "run/nvidia-persistenced")  # a socket's path has 107 bytes, pytest's folders have more
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        files = found(tmp_path)
    assert files.sockets == (Placed("/run/nvidia-persistenced/socket", "/run/nvidia-persistenced/socket"),)


@pytest.mark.parametrize(
    "library_dir",
    ["usr/lib64", "lib64", "usr/lib/aarch64-linux-gnu", "usr/lib/x86_64-linux-gnu/nvidia/current", "lib/x86_64-linux-gnu"],
)  # fmt: skip
def test_usual_library_directories_are_searched(tmp_path: Path, library_dir: str):
    """RHEL, Google's COS, ARM, Debian."""
    files = found(make_driver_root(tmp_path, VERSION, library_dir=library_dir))
    assert files.library_dir == f"/{library_dir}"
    assert len(files.libraries) == len(SONAMES)


def test_driver_containers_absolute_link_is_followed_inside(tmp_path: Path):
    """`/lib64 -> /usr/lib64` of a driver root means the driver root's."""
    make_driver_root(tmp_path, VERSION, library_dir="opt/lib")
    (tmp_path / "usr/lib64").symlink_to("/opt/lib")
    assert found(tmp_path).library_dir == "/opt/lib"


def test_version_comes_from_the_files_when_nobody_says(tmp_path: Path):
    """The one that libcuda.so.1 leads to, though older files were left behind by an upgrade."""
    make_driver_root(tmp_path, "580.105.08")
    make_driver_root(tmp_path, "575.57.08")
    assert found(tmp_path, None).version == "575.57.08"
    for link in ("libcuda.so.1", "libnvidia-ml.so.1"):
        (tmp_path / f"usr/lib/x86_64-linux-gnu/{link}").unlink()
    assert found(tmp_path, None).version == "580.105.08"


def test_only_the_wanted_version_is_taken(tmp_path: Path):
    """The kernel module talks to no other."""
    make_driver_root(tmp_path, "580.105.08")
    make_driver_root(tmp_path, "575.57.08")
    assert all(name.endswith(".580.105.08") for name in names(found(tmp_path, "580.105.08")))


def test_libraries_outside_the_numbering_are_taken(tmp_path: Path):
    """vdpau in its folder, nvvm70 with a version of its own; another vendor's, a directory and a dead link are not."""
    make_driver_root(tmp_path, VERSION)
    libraries = tmp_path / UBUNTU[1:]
    (libraries / "vdpau").mkdir()
    (libraries / f"vdpau/libvdpau_nvidia.so.{VERSION}").write_bytes(elf("libvdpau_nvidia.so.1"))
    (libraries / "libnvidia-nvvm70.so.4").write_bytes(elf("libnvidia-nvvm70.so.4"))
    (libraries / "libc.so.6").write_bytes(elf("libc.so.6"))
    (libraries / f"liba.so.{VERSION}").mkdir()
    (libraries / f"libb.so.{VERSION}").symlink_to("nowhere")
    extra = [library for library in found(tmp_path).libraries if library.name.partition(".")[0] not in SONAMES]
    assert extra == [
        Library(f"{UBUNTU}/libnvidia-nvvm70.so.4", "libnvidia-nvvm70.so.4", ()),
        Library(
            f"{UBUNTU}/vdpau/libvdpau_nvidia.so.{VERSION}",
            f"vdpau/libvdpau_nvidia.so.{VERSION}",
            ("vdpau/libvdpau_nvidia.so.1",),
        ),
    ]


def test_unreadable_library_keeps_the_names_everybody_needs(tmp_path: Path):
    """libcuda.so.1 is what programs open, whatever the file says of itself."""
    make_driver_root(tmp_path, VERSION)
    (tmp_path / UBUNTU[1:] / f"libcuda.so.{VERSION}").write_bytes(b"not an ELF file")
    assert found(tmp_path).libraries[0].links == ("libcuda.so.1", "libcuda.so")


def test_missing_driver_root_is_named(tmp_path: Path):
    """Case F4: the error names the missing path."""
    with pytest.raises(Refused, match="no directory, so the driver root is not there") as refused:
        found(tmp_path / "gone")
    assert refused.value.reason.what.startswith(f"{tmp_path}/gone: ")


def test_root_without_driver_is_named(tmp_path: Path):
    """What was looked for, and where."""
    with pytest.raises(Refused) as refused:
        found(tmp_path)
    assert refused.value.reason.what.startswith(f"{tmp_path}: no libcuda.so.{VERSION} in any of /usr/lib64, ")


def test_driver_of_another_version_is_named(tmp_path: Path):
    """An upgrade without a reboot: the loaded module is older than the files."""
    make_driver_root(tmp_path, "590.10.01")
    with pytest.raises(Refused) as refused:
        found(tmp_path)
    assert refused.value.reason.what == (
        f"{tmp_path}: no libcuda.so.{VERSION} here, which the loaded kernel module needs; "
        f"found 590.10.01 in {tmp_path}{UBUNTU}"
    )


def test_replaced_driver_root_is_looked_at_again(tmp_path: Path):
    """Case F4: the toolkit's pods were replaced, and every prepare failed until the plugin was restarted."""
    root = make_driver_root(tmp_path / "driver", VERSION)
    cache = DriverFilesCache(Root.same(root))
    assert cache.files(None).version == VERSION
    shutil.rmtree(root)
    with pytest.raises(Refused, match="the driver root is not there"):
        cache.files(None)
    make_driver_root(root, "590.10.01", library_dir="usr/lib64")
    assert cache.files(None).version == "590.10.01"
    assert cache.files(None).library_dir == "/usr/lib64"


def test_root_swapped_for_another_is_looked_at_again(tmp_path: Path):
    """Case F4, done at once: a new inode under the old name."""
    root = make_driver_root(tmp_path / "driver", VERSION)
    other = make_driver_root(tmp_path / "other", VERSION, sonames={"libcuda": "libcuda.so.1"})
    cache = DriverFilesCache(Root.same(root))
    assert len(cache.files(VERSION).libraries) == len(SONAMES)
    root.rename(tmp_path / "old")
    other.rename(root)
    assert len(cache.files(VERSION).libraries) == 1


def test_added_file_is_seen(tmp_path: Path):
    """A directory's time changes with its entries."""
    root = make_driver_root(tmp_path, VERSION)
    cache = DriverFilesCache(Root.same(root))
    before = len(cache.files(VERSION).libraries)
    directory = root / UBUNTU[1:]
    (directory / f"libnvidia-cfg.so.{VERSION}").write_bytes(elf("libnvidia-cfg.so.1"))
    os.utime(directory, ns=(0, directory.stat().st_mtime_ns + 1))  # file systems with coarse times exist
    assert len(cache.files(VERSION).libraries) == before + 1


def test_unchanged_root_is_not_searched_again(tmp_path: Path):
    """Every prepare asks; the answer is the same object."""
    cache = DriverFilesCache(Root.same(make_driver_root(tmp_path, VERSION)))
    assert cache.files(VERSION) is cache.files(VERSION)
