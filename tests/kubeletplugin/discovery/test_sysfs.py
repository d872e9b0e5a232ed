"""Reading PCI functions from a sysfs tree."""

import os
from pathlib import Path

import pytest

from api.pci import PciAddress, Place
from kubeletplugin.discovery import sysfs


def a_function(root: Path, path: str, **files: str) -> Path:
    """Lay out one function with its bus link, as the kernel does."""
    directory = root / path
    directory.mkdir(parents=True)
    for name, text in files.items():
        (directory / {"cls": "class"}.get(name, name)).write_text(f"{text}\n")
    listing = root / "bus/pci/devices"
    listing.mkdir(parents=True, exist_ok=True)
    (listing / directory.name).symlink_to(os.path.relpath(directory, listing))
    return directory


def a_gpu(root: Path, path: str, **files: str) -> Path:
    return a_function(root, path, **{"cls": "0x030200", "vendor": "0x10de", "device": "0x2330", **files})


def test_chain_of_a_gpu_behind_a_switch_is_read_outermost_first(tmp_path: Path) -> None:
    """Root port, upstream port, downstream port; the switch is named by its upstream port."""
    a_gpu(tmp_path, "devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0", numa_node="0")
    (gpu,) = sysfs.scan(tmp_path).gpus
    bridges = tuple(map(PciAddress.parse, ("0000:15:01.0", "0000:16:00.0", "0000:17:00.0")))
    expected = Place(
        PciAddress.parse("0000:18:00.0"), "pci0000:15", root_is_standard=True, bridges=bridges, numa_node=0
    )
    assert gpu.place == expected
    assert str(gpu.place.switch) == "0000:16:00.0"


def test_hyper_v_path_gives_a_root_that_is_not_standard(tmp_path: Path) -> None:
    """Case C1: the root is found below VMBUS, and marked so that it is not published as the standard attribute."""
    path = "devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/47505500-0001-0000-3130-444531303235/pci0001:00/0001:00:00.0"
    a_gpu(tmp_path, path, numa_node="0")
    (gpu,) = sysfs.scan(tmp_path).gpus
    assert (gpu.place.root, gpu.place.root_is_standard, gpu.place.bridges) == ("pci0001:00", False, ())


def test_path_without_a_root_still_gives_a_device(tmp_path: Path) -> None:
    """Case C1: a missing root is an absent attribute, never a crash."""
    a_gpu(tmp_path, "devices/platform/soc/0000:01:00.0")
    (gpu,) = sysfs.scan(tmp_path).gpus
    assert (gpu.place.root, gpu.place.numa_node) == (None, None)


@pytest.mark.parametrize("text", ["-1", "", "none"])
def test_unknown_numa_node_is_none(tmp_path: Path, text: str) -> None:
    """The kernel's -1 is never published."""
    a_gpu(tmp_path, "devices/pci0000:00/0000:00:1e.0", numa_node=text)
    assert sysfs.scan(tmp_path).gpus[0].place.numa_node is None


def test_root_comes_from_the_path_and_not_from_the_bus_number(tmp_path: Path) -> None:
    """Case C10: 0000:27:00.2 hangs below pci0000:26, in the standard form pci<domain>:<bus>."""
    a_function(tmp_path, "devices/pci0000:26/0000:26:01.0/0000:27:00.0", cls="0x020000", vendor="0x15b3")
    virtual = a_function(tmp_path, "devices/pci0000:26/0000:26:01.0/0000:27:00.2", cls="0x020000", vendor="0x15b3")
    (virtual / "physfn").symlink_to("../0000:27:00.0")
    physical, vf = sysfs.scan(tmp_path).nics
    assert (vf.place.root, vf.physical_function) == ("pci0000:26", "0000:27:00.0")
    assert physical.physical_function is None


def test_same_numa_node_does_not_make_one_root(tmp_path: Path) -> None:
    """Case C8: several root complexes on one node stay apart."""
    for root in ("26", "48", "59"):
        bus = int(root, 16) + 1
        a_gpu(tmp_path, f"devices/pci0000:{root}/0000:{root}:01.0/0000:{bus:02x}:00.0", numa_node="0")
    places = [gpu.place for gpu in sysfs.scan(tmp_path).gpus]
    assert [place.root for place in places] == ["pci0000:26", "pci0000:48", "pci0000:59"]
    assert {place.numa_node for place in places} == {0}


def test_nics_are_found_by_class_with_their_names(tmp_path: Path) -> None:
    """Ethernet, InfiniBand and EFA; nothing else."""
    ethernet = a_function(tmp_path, "devices/pci0000:00/0000:00:05.0", cls="0x020000", vendor="0x1d0f", device="0xefa0")
    (ethernet / "infiniband/rdmap0s5").mkdir(parents=True)
    fabric = a_function(tmp_path, "devices/pci0000:00/0000:00:06.0", cls="0x020700", vendor="0x15b3", device="0x1021")
    (fabric / "net/ib0").mkdir(parents=True)
    (fabric / "net/ib1").mkdir(parents=True)
    a_function(tmp_path, "devices/pci0000:00/0000:00:07.0", cls="0x010802", vendor="0x144d")
    first, second = sysfs.scan(tmp_path).nics
    assert (first.kind, first.vendor, first.device, first.rdma_names) == ("ethernet", "0x1d0f", "0xefa0", ("rdmap0s5",))
    assert (second.kind, second.net_names, second.rdma_names) == ("infiniband", ("ib0", "ib1"), ())


def test_odd_function_is_left_out_and_said(tmp_path: Path) -> None:
    """One odd device never stops the rest."""
    a_function(tmp_path, "devices/pci0000:00/0000:00:04.0", cls="what is this")
    a_function(tmp_path, "devices/pci0000:00/no-address", cls="0x020000")
    a_gpu(tmp_path, "devices/pci0000:00/0000:00:1e.0")
    scan = sysfs.scan(tmp_path)
    assert [str(gpu.place.address) for gpu in scan.gpus] == ["0000:00:1e.0"]
    assert [item.what for item in scan.left_out] == ["0000:00:04.0", "no-address"]


def test_sysfs_that_is_not_there_is_said(tmp_path: Path) -> None:
    """No PCI bus is no crash."""
    (item,) = sysfs.scan(tmp_path).left_out
    assert item.what == "sysfs"
    assert str(tmp_path) in item.why


def test_only_nvidias_display_functions_are_gpus(tmp_path: Path) -> None:
    """Neither NVSwitch, nor the card's sound, nor another vendor's display."""
    a_function(tmp_path, "devices/pci0000:00/0000:00:01.0", cls="0x068000", vendor="0x10de")
    a_function(tmp_path, "devices/pci0000:00/0000:00:02.1", cls="0x040300", vendor="0x10de")
    a_function(tmp_path, "devices/pci0000:00/0000:00:03.0", cls="0x030000", vendor="0x1a03")
    vga = a_gpu(tmp_path, "devices/pci0000:00/0000:00:04.0", cls="0x030000")
    (tmp_path / "bus/pci/drivers/vfio-pci").mkdir(parents=True)
    (vga / "driver").symlink_to("../../../bus/pci/drivers/vfio-pci")
    (gpu,) = sysfs.scan(tmp_path).gpus
    assert (str(gpu.place.address), gpu.driver, gpu.is_virtual) == ("0000:00:04.0", "vfio-pci", False)


def test_place_of_an_unknown_function_is_none(tmp_path: Path) -> None:
    """NVML may list what sysfs does not show."""
    assert sysfs.place(tmp_path, PciAddress.parse("0000:01:00.0")) is None


def test_domain_beyond_four_digits_is_read(tmp_path: Path) -> None:
    """Intel VMD's domains nest below a function of another; the root is the outer one, as upstream has it."""
    a_gpu(tmp_path, "devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0")
    (gpu,) = sysfs.scan(tmp_path).gpus
    assert (gpu.place.root, gpu.place.address.has_standard_form) == ("pci0000:00", False)


def test_boot_id_is_read_from_proc(tmp_path: Path) -> None:
    """Empty where proc does not say."""
    assert sysfs.boot_id(tmp_path) == ""
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("b007\n")
    assert sysfs.boot_id(tmp_path) == "b007"
