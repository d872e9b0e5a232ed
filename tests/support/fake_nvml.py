"""A library object that pynvml's own wrappers can call: C entry points over a description of a machine.

Put in place by `installed`, which hands pynvml's globals back as they were.
"""

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pynvml

from api.hardware import Driver, Gpu
from api.pci import PciAddress

_BRANDS = {"Quadro": 1, "Tesla": 2, "GeForce": 5, "NvidiaRTX": 13, "Nvidia": 14}
_ARCHITECTURES = {"Turing": 6, "Ampere": 7, "Ada Lovelace": 8, "Hopper": 9, "Blackwell": 10}


@dataclass
class FakeGpu:
    """What one GPU answers."""

    bus_id: bytes = b"00000000:53:00.0"
    uuid: bytes = b"GPU-00000000-0000-0000-0000-000000000000"
    name: bytes = b"NVIDIA H100 80GB HBM3"
    minor: int = 0
    brand: int = 14
    architecture: int = 9
    capability: tuple[int, int] = (9, 0)
    memory: int = 81559 << 20
    mig: tuple[int, int] | None = (0, 0)
    """Current and pending; None: the card knows no MIG."""
    memory_numa_node: int = 0
    """What nvmlDeviceGetNumaNodeId says: the GPU's own memory, not the CPU's side."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Return code of an entry point for this GPU, by name."""
    error: int = 0
    """Return code of every entry point for this GPU."""
    recovery: int | None = 0
    """Recovery action; None: the driver knows of none."""
    remapped: tuple[int, int, int, int] | None = (0, 0, 0, 0)
    """Rows by correctable and uncorrectable errors, pending, failed; None: a card that retires pages instead."""
    uncorrectable: int = 0
    retirement_pending: int | None = None
    sram_exceeded: int = 0
    events: int = 8
    """Event types that the card supports; 8 is Xid."""


@dataclass
class FakeNvml:
    """`libnvidia-ml.so.1` as pynvml sees it."""

    gpus: list[FakeGpu] = field(default_factory=list)
    driver: bytes = b"580.105.08"
    cuda: int = 13000
    errors: Mapping[str, int] = field(default_factory=dict)
    """Return code of an entry point, whoever is asked, by name."""
    missing: frozenset[str] = frozenset()
    """Entry points that an older library lacks."""
    calls: list[str] = field(default_factory=list)
    open: int = 0
    attached: set[int] = field(default_factory=set)
    """GPUs that nobody can reset now, because NVML has them open."""
    registered: set[int] = field(default_factory=set)
    on_wait: Callable[[int], tuple[int, int] | int] = lambda _: int(pynvml.NVML_ERROR_TIMEOUT)
    """What a wait of so many ms brings: GPU and Xid, or a return code."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        entry = _ENTRIES.get(name)
        if name in self.missing or entry is None:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if code := self.errors.get(name):
                return code
            return entry(self, *arguments)

        return call


def gpu_like(gpu: Gpu) -> FakeGpu:
    """A GPU that answers what `gpu` says."""
    address = gpu.place.address
    capability = tuple(map(int, (gpu.compute_capability or "0.0").split(".")))
    return FakeGpu(
        bus_id=f"{address.domain:08X}:{address.bus:02X}:{address.device:02X}.{address.function:X}".encode(),
        uuid=gpu.uuid.encode(),
        name=(gpu.product_name or "").encode(),
        minor=gpu.minor or 0,
        brand=_BRANDS[gpu.brand or "Nvidia"],
        architecture=_ARCHITECTURES[gpu.architecture or "Hopper"],
        capability=(capability[0], capability[1]),
        memory=gpu.memory_bytes or 0,
        mig=None if gpu.mig_enabled is None else (int(gpu.mig_enabled), int(gpu.mig_enabled)),
    )


def library_like(gpus: tuple[Gpu, ...], driver: Driver) -> FakeNvml:
    """A library that knows these GPUs."""
    major, minor = (driver.cuda_version or "0.0").split(".")
    return FakeNvml(
        [gpu_like(gpu) for gpu in gpus], (driver.version or "").encode(), int(major) * 1000 + int(minor) * 10
    )


@contextlib.contextmanager
def installed(library: FakeNvml | None) -> Iterator[None]:
    """Make pynvml call this library; None makes it look for a real one."""
    before = pynvml.nvmlLib
    pynvml.nvmlLib = library
    pynvml._nvmlGetFunctionPointer_cache.clear()
    try:
        yield
    finally:
        pynvml.nvmlLib = before
        pynvml._nvmlGetFunctionPointer_cache.clear()


def _init(library: FakeNvml, flags: Any) -> int:
    library.open += 1
    if not flags & pynvml.NVML_INIT_FLAG_NO_ATTACH:
        library.attached = set(range(len(library.gpus)))
    return 0


def _shutdown(library: FakeNvml) -> int:
    library.open -= 1
    if not library.open:
        library.attached = set()
    return 0


def _give(handle: Any, index: int) -> None:
    ctypes.cast(ctypes.pointer(handle), ctypes.POINTER(ctypes.c_void_p)).contents.value = index + 1


def _handle_by_address(library: FakeNvml, address: Any, handle: Any) -> int:
    wanted = PciAddress.parse(address.value.decode())
    for index, gpu in enumerate(library.gpus):
        if PciAddress.parse(gpu.bus_id.decode()) == wanted:
            if gpu.error:
                return gpu.error
            library.attached.add(index)
            _give(handle._obj, index)
            return 0
    return int(pynvml.NVML_ERROR_NOT_FOUND)


def _register(library: FakeNvml, handle: Any, _types: Any, _events: Any) -> int:
    library.registered.add(ctypes.cast(handle, ctypes.c_void_p).value - 1)
    return 0


def _free(library: FakeNvml, _events: Any) -> int:
    library.registered = set()
    return 0


def _wait(library: FakeNvml, _events: Any, data: Any, milliseconds: Any) -> int:
    brought = library.on_wait(milliseconds.value)
    if isinstance(brought, int):
        return brought
    index, xid = brought
    if index not in library.registered:
        return int(pynvml.NVML_ERROR_TIMEOUT)
    _give(data._obj.device, index)
    data._obj.eventType, data._obj.eventData = pynvml.nvmlEventTypeXidCriticalError, xid
    return 0


def _handle(library: FakeNvml, index: Any, handle: Any) -> int:
    if code := library.gpus[index.value].errors.get("nvmlDeviceGetHandleByIndex_v2"):
        return code
    _give(handle._obj, index.value)
    return 0


def _device(name: str, fill: Callable[..., int | None]) -> Callable[..., int]:
    def entry(library: FakeNvml, handle: Any, *out: Any) -> int:
        gpu = library.gpus[ctypes.cast(handle, ctypes.c_void_p).value - 1]
        if code := gpu.error or gpu.errors.get(name, 0):
            return code
        return fill(gpu, *(getattr(argument, "_obj", argument) for argument in out)) or 0

    return entry


def _text(value: bytes, buffer: Any) -> None:
    buffer.value = value


def _number(value: int, out: Any) -> None:
    out.value = value


def _two(values: tuple[int, int], first: Any, second: Any) -> None:
    first.value, second.value = values


def _mig(gpu: FakeGpu, current: Any, pending: Any) -> int:
    if gpu.mig is None:
        return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
    _two(gpu.mig, current, pending)
    return 0


def _pci(gpu: FakeGpu, info: Any) -> None:
    info.busId = gpu.bus_id


def _memory(gpu: FakeGpu, memory: Any) -> None:
    memory.total = gpu.memory


def _remapped(gpu: FakeGpu, *out: Any) -> int:
    if gpu.remapped is None:
        return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
    for place, value in zip(out, gpu.remapped, strict=True):
        place.value = value
    return 0


def _retirement(gpu: FakeGpu, out: Any) -> int:
    if gpu.retirement_pending is None:
        return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
    out.value = gpu.retirement_pending
    return 0


def _fields(gpu: FakeGpu, _count: Any, values: Any) -> None:
    supported = values[0].fieldId == pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION and gpu.recovery is not None
    values[0].nvmlReturn = pynvml.NVML_SUCCESS if supported else pynvml.NVML_ERROR_NOT_SUPPORTED
    values[0].value.uiVal = gpu.recovery or 0


def _sram(gpu: FakeGpu, status: Any) -> None:
    status.bThresholdExceeded = gpu.sram_exceeded


_DEVICE_ENTRIES: dict[str, Callable[..., int | None]] = {
    "nvmlDeviceGetPciInfo_v3": _pci,
    "nvmlDeviceGetUUID": lambda gpu, buffer, _: _text(gpu.uuid, buffer),
    "nvmlDeviceGetName": lambda gpu, buffer, _: _text(gpu.name, buffer),
    "nvmlDeviceGetMinorNumber": lambda gpu, out: _number(gpu.minor, out),
    "nvmlDeviceGetBrand": lambda gpu, out: _number(gpu.brand, out),
    "nvmlDeviceGetArchitecture": lambda gpu, out: _number(gpu.architecture, out),
    "nvmlDeviceGetCudaComputeCapability": lambda gpu, *out: _two(gpu.capability, *out),
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetMemoryInfo_v2": _memory,
    "nvmlDeviceGetMigMode": _mig,
    "nvmlDeviceGetRemappedRows": _remapped,
    "nvmlDeviceGetRetiredPagesPendingStatus": _retirement,
    "nvmlDeviceGetTotalEccErrors": lambda gpu, _kind, _counter, out: _number(gpu.uncorrectable, out),
    "nvmlDeviceGetFieldValues": _fields,
    "nvmlDeviceGetSramEccErrorStatus": _sram,
    "nvmlDeviceGetSupportedEventTypes": lambda gpu, out: _number(gpu.events, out),
    "nvmlDeviceGetNumaNodeId": lambda gpu, out: _number(gpu.memory_numa_node, out),
}
_ENTRIES: dict[str, Callable[..., int]] = {
    "nvmlInitWithFlags": _init,
    "nvmlShutdown": _shutdown,
    "nvmlSystemGetDriverVersion": lambda library, buffer, _: _text(library.driver, buffer) or 0,
    "nvmlSystemGetCudaDriverVersion": lambda library, out: _number(library.cuda, out._obj) or 0,
    "nvmlSystemGetCudaDriverVersion_v2": lambda library, out: _number(library.cuda, out._obj) or 0,
    "nvmlDeviceGetCount_v2": lambda library, out: _number(len(library.gpus), out._obj) or 0,
    "nvmlDeviceGetHandleByIndex_v2": _handle,
    "nvmlDeviceGetHandleByPciBusId_v2": _handle_by_address,
    "nvmlEventSetCreate": lambda library, events: 0,
    "nvmlEventSetFree": _free,
    "nvmlDeviceRegisterEvents": _register,
    "nvmlEventSetWait_v2": _wait,
    **{name: _device(name, fill) for name, fill in _DEVICE_ENTRIES.items()},
}
