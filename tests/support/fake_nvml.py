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


def _init(library: FakeNvml, _flags: Any) -> int:
    library.open += 1
    return 0


def _shutdown(library: FakeNvml) -> int:
    library.open -= 1
    return 0


def _handle(library: FakeNvml, index: Any, handle: Any) -> int:
    if code := library.gpus[index.value].errors.get("nvmlDeviceGetHandleByIndex_v2"):
        return code
    ctypes.cast(ctypes.pointer(handle._obj), ctypes.POINTER(ctypes.c_void_p)).contents.value = index.value + 1
    return 0


def _device(name: str, fill: Callable[..., int | None]) -> Callable[..., int]:
    def entry(library: FakeNvml, handle: Any, *out: Any) -> int:
        gpu = library.gpus[ctypes.cast(handle, ctypes.c_void_p).value - 1]
        if code := gpu.errors.get(name):
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
    **{name: _device(name, fill) for name, fill in _DEVICE_ENTRIES.items()},
}
