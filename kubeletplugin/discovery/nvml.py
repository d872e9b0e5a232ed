"""What NVML says of the GPUs, each answer trusted on its own.

The only module that imports pynvml, and only when it is asked. One GPU, or one fact, that NVML would not tell takes nothing
else with it: NOT_SUPPORTED and its like are normal life on some boards. Places and NUMA nodes come from sysfs. How the GPUs are
is `kubeletplugin.health`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from api.hardware import Driver, Gpu, LeftOut, Machine
from api.pci import PciAddress, Place
from api.refusals import Refused
from kubeletplugin.discovery import sysfs
from kubeletplugin.discovery.nvml_library import LIBRARY, DriverAbsent, File, file_of, find_library, load
from kubeletplugin.discovery.source import NVML_ERROR, NotThereYet, is_awaited, unseen, without_twins

# The words of NVIDIA's own DRA driver, so that selectors written for it keep working: go-nvlib, pkg/nvlib/device/device.go
# (its GetBrandAsString and GetArchitectureAsString). The numbers: nvml.h of CUDA 13.
_BRANDS = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "GRID",
    5: "GeForce",
    6: "Titan",
    7: "NvidiaVApps",
    8: "NvidiaVPC",
    9: "NvidiaVCS",
    10: "NvidiaVWS",
    11: "NvidiaCloudGaming",
    12: "QuadroRTX",
    13: "NvidiaRTX",
    14: "Nvidia",
    15: "GeForceRTX",
    16: "TitanRTX",
}
_ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class NvmlFailed:
    """NVML is there and refuses to work."""

    call: str
    error: str
    hint: str = "the plugin looks again by itself; if it stays so, nvidia-smi on the node shows the same error"
    restart_helps: bool = False
    """Whether a new process would fare better than this one, which keeps the library it has loaded."""

    @property
    def what(self) -> str:
        return f"{self.call}: {self.error}"

    @property
    def remedy(self) -> str:
        return self.hint


_OLD_MODULE = (
    "load the kernel module of the driver that is installed, or reboot the node; the plugin looks again by itself"
)
_RESTARTS = (
    "the driver was changed under a running process: the plugin restarts by itself to load the new library; if it stays so, "
    + _OLD_MODULE
)


class _GpuGone(Exception):  # noqa: N818  # leaves one GPU out; nothing fails by it
    """NVML lost this GPU while we asked, so none of its answers counts."""


class NvmlSource:
    """The node's real hardware. Not for use by several threads at once."""

    def __init__(
        self,
        driver_root: Path,
        sysfs_root: Path,
        proc_root: Path,
        *,
        found_before: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`found_before` says whether any GPU was found in the boot of this id: then NVML that lists none has lost them."""
        self._driver_root, self._sysfs_root, self._proc_root = driver_root, sysfs_root, proc_root
        self._found_before = found_before
        self._loaded: File | None = None
        """The library as this process loaded it; None while that is not known."""

    def discover(self) -> Machine:
        """See `Source.discover`. Raises Refused(DriverAbsent | NvmlFailed | NotThereYet).

        NVML is opened and closed each time, because it lists only the GPUs that were there when it was opened.
        """
        scanned = sysfs.scan(self._sysfs_root)
        boot_id = sysfs.boot_id(self._proc_root)
        with self.opened() as nvml:
            reading = _Reading(nvml, self._sysfs_root)
            gpus = reading.gpus()
            driver = reading.driver()
        kept, twins = without_twins(gpus)
        not_listed = unseen(scanned.gpus, frozenset(reading.seen))
        awaited = tuple(PciAddress.parse(item.what) for item in not_listed if is_awaited(item))
        if awaited and reading.count == 0 and not self._found_before(boot_id):
            raise Refused(NotThereYet(awaited))
        left_out = (*scanned.left_out, *reading.left_out, *twins, *not_listed)
        return Machine(
            gpus=kept,
            nics=scanned.nics,
            driver=driver,
            boot_id=boot_id,
            left_out=tuple(sorted(left_out, key=lambda item: (item.what, item.why))),
        )

    @contextmanager
    def opened(self, *, attach: bool = True) -> Iterator[Any]:
        """pynvml, initialised; Refused when that is not possible. Without `attach` it opens only the GPUs that it is asked
        about by their address."""
        import pynvml

        # pynvml keeps the library it once loaded, and a process cannot swap it; a new driver shows as a mismatch below.
        if pynvml.nvmlLib is None:
            self._loaded = load(self._driver_root)
        try:
            pynvml.nvmlInitWithFlags(0 if attach else pynvml.NVML_INIT_FLAG_NO_ATTACH)
        except pynvml.NVMLError as error:
            raise Refused(self._why_no_init(pynvml, error)) from error
        try:
            yield pynvml
        finally:
            try:
                pynvml.nvmlShutdown()
            except pynvml.NVMLError as error:
                _log.debug("nvml shutdown refused", why=str(error))

    def _why_no_init(self, nvml: Any, error: Any) -> DriverAbsent | NvmlFailed:
        match error.value:
            case nvml.NVML_ERROR_LIBRARY_NOT_FOUND:
                return DriverAbsent(self._driver_root, f"{LIBRARY} was not found")
            case nvml.NVML_ERROR_DRIVER_NOT_LOADED:
                return DriverAbsent(self._driver_root, "the kernel module nvidia is not loaded")
            case nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
                if self._would_load_another():
                    return NvmlFailed("nvmlInit", str(error), _RESTARTS, restart_helps=True)
                return NvmlFailed("nvmlInit", str(error), _OLD_MODULE)
            case nvml.NVML_ERROR_NO_PERMISSION:
                return NvmlFailed("nvmlInit", str(error), "let the plugin open /dev/nvidiactl: run it privileged")
            case _:
                return NvmlFailed("nvmlInit", str(error))

    def _would_load_another(self) -> bool:
        """Whether a new process would get another library than ours: the module is newer than the library where the driver was
        upgraded in full, and older where its files are new but the module was not reloaded, which no restart changes."""
        if self._loaded is None:
            return True  # as far as we know
        library = find_library(self._driver_root)
        return library is not None and file_of(library) != self._loaded


class _Reading:
    """One look through an open NVML."""

    def __init__(self, nvml: Any, sysfs_root: Path) -> None:
        self._nvml, self._sysfs_root = nvml, sysfs_root
        self.count = 0
        """How many GPUs NVML lists."""
        self.seen: set[PciAddress] = set()
        """Addresses of all GPUs that NVML lists and names, usable or not."""
        self.left_out: list[LeftOut] = []

    def driver(self) -> Driver:
        cuda = self._fact("driver", self._nvml.nvmlSystemGetCudaDriverVersion_v2)
        if cuda is None:
            cuda = self._fact("driver", self._nvml.nvmlSystemGetCudaDriverVersion)
        return Driver(
            version=self._fact("driver", self._nvml.nvmlSystemGetDriverVersion) or None,
            cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        )

    def gpus(self) -> list[Gpu]:
        try:
            self.count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            raise Refused(NvmlFailed("nvmlDeviceGetCount", str(error))) from error
        found = []
        for index in range(self.count):
            name = f"GPU with NVML's index {index}"
            try:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                address = PciAddress.parse(_text(self._nvml.nvmlDeviceGetPciInfo(handle).busId))
                name = str(address)
                self.seen.add(address)
                found.append(self._gpu(handle, address))
            except (self._nvml.NVMLError, ValueError, _GpuGone) as error:
                self.left_out.append(LeftOut(name, f"{NVML_ERROR}{error}"))
        return found

    def _gpu(self, handle: Any, address: PciAddress) -> Gpu:
        nvml, name = self._nvml, str(address)
        where = sysfs.place(self._sysfs_root, address)
        if where is None:
            self.left_out.append(LeftOut(f"{address} place", "not in sysfs, so nothing is known of where it sits"))
        capability = self._fact(name, nvml.nvmlDeviceGetCudaComputeCapability, handle)
        mig_mode = self._fact(name, nvml.nvmlDeviceGetMigMode, handle)
        return Gpu(
            place=where or Place(address),
            uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
            minor=self._fact(name, nvml.nvmlDeviceGetMinorNumber, handle),
            product_name=self._fact(name, nvml.nvmlDeviceGetName, handle) or None,
            brand=_BRANDS.get(self._fact(name, nvml.nvmlDeviceGetBrand, handle)),
            architecture=_ARCHITECTURES.get(self._fact(name, nvml.nvmlDeviceGetArchitecture, handle)),
            compute_capability=".".join(map(str, capability)) if capability else None,
            memory_bytes=self._memory(name, handle),
            # The current mode, not the pending one: on Ampere a change waits for a reset (Case D4).
            mig_enabled=bool(mig_mode[0]) if mig_mode else None,
        )

    def _memory(self, name: str, handle: Any) -> int | None:
        """Bytes in all. Unified memory: v1 is not supported and v2 answers on some boards only (Case L8)."""
        memory = self._fact(name, self._nvml.nvmlDeviceGetMemoryInfo, handle)
        if memory is None:
            memory = self._fact(name, self._nvml.nvmlDeviceGetMemoryInfo, handle, self._nvml.nvmlMemory_v2)
        return int(memory.total) or None if memory is not None else None

    def _fact(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """One answer, or None. What is no answer of this board stays quiet, what went wrong is said."""
        nvml = self._nvml
        try:
            answer = call(*arguments)
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED):
                raise _GpuGone(str(error)) from error
            if error.value not in (
                nvml.NVML_ERROR_NOT_SUPPORTED,
                nvml.NVML_ERROR_NOT_FOUND,
                nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
                nvml.NVML_ERROR_NO_PERMISSION,
            ):
                said = LeftOut(f"{name} {call.__name__}", f"NVML: {error}")
                if said not in self.left_out:
                    self.left_out.append(said)
            return None
        except UnicodeDecodeError:
            # pynvml's wrapper decodes strictly, and some drivers under WSL answer bytes that are not UTF-8 (Case L7).
            # functools.wraps left the function that returns the bytes.
            undecoded = getattr(call, "__wrapped__", None)
            answer = undecoded(*arguments) if undecoded is not None else None
        return _text(answer) if isinstance(answer, (bytes, str)) else answer


def _text(answer: bytes | str) -> str:
    """pynvml has answered bytes and str in its time (Case L7)."""
    return answer.decode("utf-8", errors="replace") if isinstance(answer, bytes) else answer
