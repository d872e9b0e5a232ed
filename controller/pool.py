"""Which devices a node's hardware should be published as.

Whether they are published at all is `controller.decide`; cutting them into slices is `controller.slices`.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from api.hardware import Gpu, LeftOut, Machine
from api.names import gpu_device_name
from api.pci import PciAddress
from controller.attributes import describe
from controller.device import Device
from controller.validate import faults_of_device


@dataclass(frozen=True, slots=True)
class Pool:
    """A node's devices, in the order of their PCI addresses whatever order they were found in."""

    devices: tuple[Device, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    """Devices that are there and are not published."""


def devices_of(machine: Machine) -> Pool:
    """One device for each whole GPU; one that cannot be published is left out and said, and stops no other."""
    gpus = sorted(machine.gpus, key=lambda gpu: (gpu.place.address, gpu.uuid))
    uuids = Counter(gpu.uuid for gpu in gpus)
    addresses = Counter(gpu.place.address for gpu in gpus)
    devices: list[Device] = []
    left_out: list[LeftOut] = []
    for gpu in gpus:
        name = gpu_device_name(gpu.place.address)
        described = describe(gpu, machine.driver)
        device = Device(name, described.attributes, described.capacity, gpu.ailments)
        reasons = (*_why_not(gpu, uuids, addresses), *faults_of_device(device.encode()))
        if reasons:
            left_out.append(LeftOut(name, "; ".join(reasons)))
        else:
            devices.append(device)
    return Pool(tuple(devices), tuple(left_out))


def _why_not(gpu: Gpu, uuids: Counter[str], addresses: Counter[PciAddress]) -> Iterable[str]:
    if not gpu.uuid:
        yield "it has no UUID, so nothing could tell it from another"
    elif uuids[gpu.uuid] > 1:
        # Which of them is the real one cannot be known, and a claim must not get the wrong one.
        yield f"{uuids[gpu.uuid]} GPUs report the UUID {gpu.uuid}"
    if addresses[gpu.place.address] > 1:
        yield f"{addresses[gpu.place.address]} GPUs report the PCI address {gpu.place.address}"
    if gpu.mig_enabled:
        # Case D1: a container given the whole GPU would see none of its memory, or share it with its own slices.
        yield "MIG mode is on: its slices may be in use, so it is not offered as a whole; to offer it: nvidia-smi -mig 0"
