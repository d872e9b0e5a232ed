"""NVML through pynvml's own wrappers, on a library made up in Python."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from api.hardware import LeftOut, Machine
from api.refusals import Refused
from kubeletplugin.discovery.nvml import NvmlFailed, NvmlSource
from kubeletplugin.discovery.nvml_library import DriverAbsent, find_library
from kubeletplugin.discovery.simulated import SimulatedSource, render
from kubeletplugin.discovery.source import NO_DRIVER_BOUND, NOT_LISTED, NotThereYet
from tests.support.fake_nvml import FakeGpu, FakeNvml, installed, library_like
from tests.support.machines import ALL, a_machine

Discover = Callable[[FakeNvml], Machine]


@pytest.fixture(scope="module")
def two_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A machine with two GPUs, rendered for all tests that only look."""
    root = tmp_path_factory.mktemp("two")
    render(a_machine(), root, nodes="plain")
    return root


@pytest.fixture
def discover(two_root: Path) -> Discover:
    """Ask a made-up library about the rendered machine."""
    return lambda library: look(two_root, library)


def look(root: Path, library: FakeNvml) -> Machine:
    """Ask a made-up library about the machine rendered at root."""
    with installed(library):
        return NvmlSource(Path("/"), root / "sys", root / "proc").discover()


def two_gpus(first: FakeGpu | None = None) -> FakeNvml:
    """Two GPUs at the addresses of the rendered machine, the first as given."""
    second = FakeGpu(bus_id=b"00000000:64:00.0", uuid=b"GPU-second", minor=1)
    return FakeNvml([first or FakeGpu(uuid=b"GPU-first"), second])


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_real_and_simulated_source_find_the_same(path: Path, rendered: Callable[[Path], Path]) -> None:
    """One machine, once simulated and once through NVML on the tree that the simulation rendered."""
    root = rendered(path)
    simulated = SimulatedSource(path, root, "node-a", nodes="plain").discover()
    with installed(library_like(tuple(reversed(simulated.gpus)), simulated.driver)):
        real = NvmlSource(Path("/"), root / "sys", root / "proc").discover()
    assert replace(real, simulated=True) == simulated


def test_nvml_is_closed_after_each_look(discover: Discover) -> None:
    """An NVML that stays open lists only the GPUs that were there when it was opened."""
    library = two_gpus()
    discover(library)
    assert library.open == 0
    assert library.calls[-1] == "nvmlShutdown"


def test_device_minor_is_not_the_index(discover: Discover) -> None:
    """Case F5: index 0 may be /dev/nvidia2."""
    library = two_gpus()
    library.gpus[0].minor, library.gpus[1].minor = 2, 0
    assert [gpu.minor for gpu in discover(library).gpus] == [2, 0]


def test_two_gpus_with_one_minor_are_both_left_out(discover: Discover) -> None:
    """Case F5: handing out either would hand out somebody else's."""
    library = two_gpus()
    library.gpus[1].minor = library.gpus[0].minor
    machine = discover(library)
    assert machine.gpus == ()
    why = "device minor 0 is reported for several GPUs: 0000:53:00.0, 0000:64:00.0"
    assert machine.left_out == (LeftOut("0000:53:00.0", why), LeftOut("0000:64:00.0", why))


def test_name_that_is_not_utf_8_is_replaced(discover: Discover) -> None:
    """Case L7: pynvml's wrapper raises on such bytes; the device is published all the same."""
    machine = discover(two_gpus(FakeGpu(name=b"\xf8\x00")))
    assert len(machine.gpus) == 2
    assert machine.gpus[0].product_name == "�"


def test_bytes_and_str_are_taken_alike(discover: Discover, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case L7: older bindings answer bytes, newer ones str."""
    expected = discover(two_gpus())
    for name in ("nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlSystemGetDriverVersion"):
        monkeypatch.setattr(pynvml, name, getattr(pynvml, name).__wrapped__)
    assert discover(two_gpus()) == expected


@pytest.mark.parametrize(
    ("errors", "missing", "expected"),
    [
        ({"nvmlDeviceGetMemoryInfo": pynvml.NVML_ERROR_NOT_SUPPORTED}, frozenset(), 81559 << 20),
        (
            {
                "nvmlDeviceGetMemoryInfo": pynvml.NVML_ERROR_NOT_SUPPORTED,
                "nvmlDeviceGetMemoryInfo_v2": pynvml.NVML_ERROR_NOT_SUPPORTED,
            },
            frozenset(),
            None,
        ),
        ({"nvmlDeviceGetMemoryInfo": pynvml.NVML_ERROR_NOT_SUPPORTED}, frozenset({"nvmlDeviceGetMemoryInfo_v2"}), None),
    ],
    ids=["v2 answers", "neither answers", "v2 is missing"],
)
def test_unified_memory_never_costs_the_device(
    discover: Discover, errors: dict[str, int], missing: frozenset[str], expected: int | None
) -> None:
    """Case L8: memory from v2 where v1 has none, else it is not known."""
    machine = discover(replace(two_gpus(FakeGpu(errors=errors)), missing=missing))
    assert machine.gpus[0].memory_bytes == expected
    assert machine.left_out == ()


@pytest.mark.parametrize(
    ("call", "fact"),
    [
        ("nvmlDeviceGetName", "product_name"),
        ("nvmlDeviceGetMinorNumber", "minor"),
        ("nvmlDeviceGetBrand", "brand"),
        ("nvmlDeviceGetArchitecture", "architecture"),
        ("nvmlDeviceGetCudaComputeCapability", "compute_capability"),
        ("nvmlDeviceGetMigMode", "mig_enabled"),
    ],
)
@pytest.mark.parametrize(
    "code", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_UNKNOWN]
)
def test_fact_that_nvml_would_not_tell_is_none(discover: Discover, call: str, fact: str, code: int) -> None:
    """Each answer stands for itself; what went wrong, and was not merely unsupported, is said."""
    machine = discover(two_gpus(FakeGpu(errors={call: code})))
    assert getattr(machine.gpus[0], fact) is None
    assert getattr(machine.gpus[1], fact) is not None
    assert bool(machine.left_out) == (code == pynvml.NVML_ERROR_UNKNOWN)


@pytest.mark.parametrize("call", ["nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetPciInfo_v3"])
def test_lost_gpu_is_left_out_and_the_other_stays(discover: Discover, call: str) -> None:
    """A GPU that falls off the bus while it is asked answers nothing that counts."""
    machine = discover(two_gpus(FakeGpu(errors={call: pynvml.NVML_ERROR_GPU_IS_LOST})))
    assert [gpu.uuid for gpu in machine.gpus] == ["GPU-second"]
    assert "GPU is lost" in machine.left_out[-1].why


def test_gpu_that_gives_no_handle_is_said_twice(discover: Discover) -> None:
    """Once as NVML's index, and once as what sysfs shows and NVML does not."""
    machine = discover(two_gpus(FakeGpu(errors={"nvmlDeviceGetHandleByIndex_v2": pynvml.NVML_ERROR_GPU_IS_LOST})))
    assert machine.left_out == (
        LeftOut("0000:53:00.0", NOT_LISTED),
        LeftOut("GPU with NVML's index 0", "NVML: GPU is lost"),
    )


def test_machine_whose_gpus_are_all_lost_is_told_as_such(discover: Discover) -> None:
    """NVML lists them, so this is no boot that needs patience."""
    library = two_gpus()
    for gpu in library.gpus:
        gpu.errors = {"nvmlDeviceGetHandleByIndex_v2": pynvml.NVML_ERROR_GPU_IS_LOST}
    machine = discover(library)
    assert machine.gpus == ()
    assert len(machine.left_out) == 4


def test_gpu_without_uuid_is_left_out(discover: Discover) -> None:
    """Nothing can be told apart without one."""
    machine = discover(two_gpus(FakeGpu(errors={"nvmlDeviceGetUUID": pynvml.NVML_ERROR_NOT_SUPPORTED})))
    assert machine.left_out == (LeftOut("0000:53:00.0", "NVML: Not Supported"),)


def test_gpu_missing_in_sysfs_has_an_address_alone(discover: Discover) -> None:
    """What is not known of its place is said, the GPU is used."""
    machine = discover(two_gpus(FakeGpu(bus_id=b"00000000:AA:00.0", minor=7)))
    gpu = machine.gpus[-1]
    assert (str(gpu.place.address), gpu.place.root) == ("0000:aa:00.0", None)
    assert LeftOut("0000:aa:00.0 place", "not in sysfs, so nothing is known of where it sits") in machine.left_out


def test_numa_node_is_the_cpus_side(discover: Discover) -> None:
    """Case C7: on GB200 NVML's NUMA node is the GPU's own memory; no NIC is near it, and NVML is never asked."""
    library = two_gpus(FakeGpu(memory_numa_node=2))
    assert [gpu.place.numa_node for gpu in discover(library).gpus] == [0, 1]
    assert "nvmlDeviceGetNumaNodeId" not in library.calls


def test_current_mig_mode_counts_and_not_the_pending_one(discover: Discover) -> None:
    """Case D4: on Ampere a changed mode waits for a reset."""
    library = two_gpus(FakeGpu(mig=(0, 1)))
    library.gpus[1].mig = (1, 0)
    assert [gpu.mig_enabled for gpu in discover(library).gpus] == [False, True]


def test_versions_are_as_the_driver_writes_them(discover: Discover) -> None:
    """Case I1: making them fit is the publisher's part."""
    library = replace(two_gpus(), driver=b"550.54", cuda=12040)
    assert discover(library).driver.version == "550.54"
    assert discover(library).driver.cuda_version == "12.4"
    assert discover(replace(library, driver=b"")).driver.version is None


def test_library_without_versions_costs_no_gpu(discover: Discover) -> None:
    """The driver's facts are trusted one by one too."""
    missing = frozenset({"nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetDriverVersion"})
    machine = discover(replace(two_gpus(), missing=missing))
    assert (machine.driver.version, machine.driver.cuda_version, len(machine.gpus)) == (None, "13.0", 2)


def test_no_gpu_where_sysfs_shows_some_is_not_there_yet(discover: Discover) -> None:
    """Case I6: an init that succeeds with count 0 at boot is no empty machine."""
    with pytest.raises(Refused) as refused:
        discover(FakeNvml())
    assert isinstance(refused.value.reason, NotThereYet)
    assert refused.value.reason.what == "NVML lists no GPU, but sysfs shows 0000:53:00.0, 0000:64:00.0"


def test_no_gpu_where_this_boot_had_some_is_a_machine_that_lost_them(two_root: Path) -> None:
    """A node's only GPU fell off the bus: that is to be told, not to be waited for. Another boot's GPUs are none of this."""
    boot_id = (two_root / "proc/sys/kernel/random/boot_id").read_text().strip()
    places = (Path("/"), two_root / "sys", two_root / "proc")
    with installed(FakeNvml()):
        assert NvmlSource(*places, found_before=lambda boot: boot == boot_id).discover().gpus == ()
        with pytest.raises(Refused):
            NvmlSource(*places, found_before=lambda boot: boot != boot_id).discover()


def test_gpus_of_other_drivers_are_left_out_for_good(tmp_path: Path) -> None:
    """A card given to a virtual machine is not waited for; one without driver is."""
    render(a_machine(), tmp_path, nodes="plain")
    first, second = (tmp_path / "sys/bus/pci/devices" / name / "driver" for name in ("0000:53:00.0", "0000:64:00.0"))
    first.unlink()
    first.symlink_to("../../../bus/pci/drivers/vfio-pci")
    machine = look(tmp_path, FakeNvml([FakeGpu(bus_id=b"00000000:64:00.0")]))
    assert machine.left_out == (LeftOut("0000:53:00.0", "bound to the driver vfio-pci, not to nvidia"),)
    second.unlink()
    second.symlink_to("../../../bus/pci/drivers/vfio-pci")
    assert look(tmp_path, FakeNvml()).gpus == ()
    first.unlink()
    machine = look(tmp_path, FakeNvml([FakeGpu(bus_id=b"00000000:64:00.0")]))
    assert machine.left_out == (LeftOut("0000:53:00.0", NO_DRIVER_BOUND),)


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, DriverAbsent, "the kernel module nvidia is not loaded"),
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, DriverAbsent, "libnvidia-ml.so.1 was not found"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, NvmlFailed, "the plugin restarts by itself"),
        (pynvml.NVML_ERROR_NO_PERMISSION, NvmlFailed, "run it privileged"),
        (pynvml.NVML_ERROR_NOT_SUPPORTED, NvmlFailed, "nvmlInit: Not Supported"),
        (pynvml.NVML_ERROR_UNKNOWN, NvmlFailed, "nvmlInit: Unknown Error"),
    ],
)
def test_driver_that_does_not_come_up_is_refused_with_its_reason(
    discover: Discover, code: int, kind: type, words: str
) -> None:
    """A driver that is not there yet is normal life."""
    with pytest.raises(Refused) as refused:
        discover(FakeNvml(errors={"nvmlInitWithFlags": code}))
    assert isinstance(refused.value.reason, kind)
    assert words in str(refused.value)


def test_restart_helps_only_where_it_would_load_another_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same mismatch twice: files new and module old, which a new process would find too; then the library is another."""
    path = tmp_path / "usr/lib64/libnvidia-ml.so.1"
    path.parent.mkdir(parents=True)
    path.touch()
    mismatch = FakeNvml(errors={"nvmlInitWithFlags": pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH})
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: setattr(pynvml, "nvmlLib", mismatch))
    source = NvmlSource(tmp_path, tmp_path, tmp_path)

    def reason() -> NvmlFailed:
        with pytest.raises(Refused) as refused:
            source.discover()
        assert isinstance(refused.value.reason, NvmlFailed)
        return refused.value.reason

    with installed(None):
        first = reason()
        assert (first.restart_helps, first.remedy.split(",")[0]) == (
            False,
            "load the kernel module of the driver that is installed",
        )
        path.rename(path.with_name("libnvidia-ml.so.580.95.05"))
        assert not reason().restart_helps, "nothing to load yet"
        path.write_bytes(b"another driver's")
        assert reason().restart_helps


def test_count_that_fails_is_refused(discover: Discover) -> None:
    """Without a count there is nothing to say."""
    library = FakeNvml(errors={"nvmlDeviceGetCount_v2": pynvml.NVML_ERROR_UNKNOWN})
    with pytest.raises(Refused, match="nvmlDeviceGetCount: Unknown Error"):
        discover(library)
    assert library.open == 0


def test_missing_library_is_refused_with_the_root(tmp_path: Path) -> None:
    """What is wrong, where, and what to do."""
    with installed(None), pytest.raises(Refused) as refused:
        NvmlSource(tmp_path, tmp_path, tmp_path).discover()
    assert str(refused.value) == (
        f"no NVIDIA driver below {tmp_path}: libnvidia-ml.so.1 was not found "
        "(install the driver, or name where it is with --driver-root; the plugin looks again by itself)"
    )


def test_directory_in_the_librarys_place_is_passed_over(tmp_path: Path) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#1272: a mount made a directory where the library should be."""
    (tmp_path / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1").mkdir(parents=True)
    assert find_library(tmp_path) is None
    (tmp_path / "usr/lib64").mkdir()
    (tmp_path / "usr/lib64/libnvidia-ml.so.1").touch()
    assert find_library(tmp_path) == tmp_path / "usr/lib64/libnvidia-ml.so.1"


def test_links_of_the_library_are_the_roots_own(tmp_path: Path) -> None:
    """An absolute link in a driver root points into the root, not into our image."""
    real = tmp_path / "usr/lib/nvidia/libnvidia-ml.so.580.105.08"
    real.parent.mkdir(parents=True)
    real.touch()
    (tmp_path / "usr/lib64").mkdir()
    (tmp_path / "usr/lib64/libnvidia-ml.so.1").symlink_to("/usr/lib/nvidia/libnvidia-ml.so.580.105.08")
    assert find_library(tmp_path) == real
    (tmp_path / "usr/lib/libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.1")
    (tmp_path / "usr/lib64/libnvidia-ml.so.1").unlink()
    assert find_library(tmp_path) is None


def test_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    """A truncated library is told with its path."""
    library = tmp_path / "usr/lib64/libnvidia-ml.so.1"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"not an ELF file")
    with installed(None), pytest.raises(Refused, match=f"{library} cannot be loaded"):
        NvmlSource(tmp_path, tmp_path, tmp_path).discover()


def test_gpu_functions_of_a_hypervisor_are_not_missed(tmp_path: Path) -> None:
    """The virtual functions of a GPU on this machine belong to vGPU, and NVML never lists them."""
    render(a_machine(), tmp_path, nodes="plain")
    virtual = tmp_path / "sys/devices/pci0000:60/0000:64:00.4"
    virtual.mkdir()
    (virtual / "class").write_text("0x030200\n")
    (virtual / "vendor").write_text("0x10de\n")
    (virtual / "physfn").symlink_to("../0000:64:00.0")
    listing = tmp_path / "sys/bus/pci/devices"
    (listing / "0000:64:00.4").symlink_to(os.path.relpath(virtual, listing))
    assert look(tmp_path, two_gpus()).left_out == ()


def test_handles_of_the_fake_are_told_apart() -> None:
    """The fake itself: two handles are two GPUs to pynvml."""
    with installed(two_gpus()):
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1)]
        assert [pynvml.nvmlDeviceGetUUID(handle) for handle in handles] == ["GPU-first", "GPU-second"]
        assert ctypes.cast(handles[1], ctypes.c_void_p).value == 2


def test_pynvml_is_imported_only_when_asked() -> None:
    """It takes 18 MB, which a simulated node need not pay."""
    code = "import sys, kubeletplugin.discovery.nvml; sys.exit('pynvml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3]).returncode == 0
