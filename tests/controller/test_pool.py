"""Which devices a node's hardware should be published as."""

import random

from api.hardware import Driver, LeftOut, Machine
from api.pci import PciAddress
from controller.device import Taint
from controller.pool import devices_of
from controller.slices import slices_of
from controller.validate import faults_of_pool
from tests.support.gpus import a_gpu, a_machine


def test_one_whole_gpu_is_one_device():
    """Named by PCI address, in its order."""
    pool = devices_of(a_machine(3))
    assert [device.name for device in pool.devices] == ["gpu-10-00-0", "gpu-18-00-0", "gpu-20-00-0"]
    assert pool.left_out == ()


def test_discovery_order_does_not_matter():
    """Shuffled hardware is the same pool, to the byte."""
    machine = a_machine(8)
    shuffled = list(machine.gpus)
    random.Random(7).shuffle(shuffled)
    assert devices_of(Machine(tuple(shuffled), driver=machine.driver)) == devices_of(machine)


def test_a_gpu_in_mig_mode_is_not_offered_whole():
    """Case D1: GPU 0 in MIG mode is left out with why, GPU 1 is published."""
    pool = devices_of(Machine((a_gpu(0x10, mig_enabled=True), a_gpu(0x20))))
    assert [device.name for device in pool.devices] == ["gpu-20-00-0"]
    assert pool.left_out == (
        LeftOut(
            "gpu-10-00-0",
            "MIG mode is on: its slices may be in use, so it is not offered as a whole; to offer it: nvidia-smi -mig 0",
        ),
    )


def test_twins_are_both_left_out():
    """Of two GPUs with one UUID, nobody knows which is which; the third is published."""
    pool = devices_of(Machine((a_gpu(0x10, uuid="GPU-x"), a_gpu(0x20, uuid="GPU-x"), a_gpu(0x30))))
    assert [device.name for device in pool.devices] == ["gpu-30-00-0"]
    assert [item.why for item in pool.left_out] == ["2 GPUs report the UUID GPU-x"] * 2
    twins = (a_gpu(0x10, uuid="GPU-x"), a_gpu(0x10, uuid="GPU-y"))
    assert [item.why for item in devices_of(Machine(twins)).left_out] == [
        "2 GPUs report the PCI address 0000:10:00.0"
    ] * 2


def test_a_gpu_without_uuid_is_left_out():
    """Nothing could be injected for it."""
    (item,) = devices_of(Machine((a_gpu(uuid=""),))).left_out
    assert item.why == "it has no UUID, so nothing could tell it from another"


def test_odd_attributes_leave_no_device_out():
    """The device is published without them."""
    pool = devices_of(Machine((a_gpu(),), driver=Driver("unknown")))
    assert (len(pool.devices), pool.left_out) == (1, ())


def test_domains_are_in_names():
    """0001:00:00.0 is another GPU than 0000:00:00.0."""
    pool = devices_of(Machine((a_gpu(address=PciAddress(1, 0x40, 0, 0)),)))
    assert pool.devices[0].name == "gpu-0001-40-00-0"


def test_slices_have_at_most_64_devices_tainted_or_not():
    """Case I3: 130 devices are three slices, which stay valid when each device is tainted."""
    pool = devices_of(a_machine(130))
    taint = Taint("lanewise.dev/unreachable", "silent", "NoSchedule")
    for taints in ((), (taint,)):
        slices = slices_of(pool.devices, node="node-a", driver="gpu.lanewise.dev", taints=lambda _, these=taints: these)
        assert [len(spec["devices"]) for spec in slices] == [64, 64, 2]
        assert {spec["pool"]["resourceSliceCount"] for spec in slices} == {3}
        assert faults_of_pool(slices) == ()


def test_no_devices_are_no_slices():
    """An empty pool says nothing to a scheduler."""
    assert slices_of((), node="node-a", driver="gpu.lanewise.dev") == ()
