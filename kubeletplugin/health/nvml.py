"""How the GPUs are, by what NVML answers and by the Xids that it hands on.

A GPU that needs a reset is let go between looks: a reset is refused while anybody has the GPU open, and NVML opens what it is
asked about. So is every GPU where Xids are not to be watched.
"""

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog

from api.hardware import Gpu
from api.health import LOST, RESET, XID
from api.pci import PciAddress
from api.timestamps import utc_now
from kubeletplugin.discovery.nvml import NvmlSource
from kubeletplugin.discovery.source import label_of
from kubeletplugin.health.course import Look, Reading
from kubeletplugin.health.watch import Bedside

SLICE_SECONDS = 1.0
"""How long one wait for an event takes at most: a stop, or discovery, waits for it."""
_LET_GO = frozenset({LOST, RESET, XID})

_log = structlog.get_logger(__name__)


class NvmlProbe:
    """Looks through the same NVML as discovery, in turn with it."""

    def __init__(
        self,
        source: NvmlSource,
        sysfs_root: Path,
        *,
        watch_xids: bool,
        clock: Callable[[], float],
        wall: Callable[[], datetime] = utc_now,
    ) -> None:
        self._source, self._sysfs_root, self._watch_xids = source, sysfs_root, watch_xids
        self._clock, self._wall = clock, wall
        self._xids: tuple[tuple[str, int], ...] = ()
        """What happened since the last look."""
        self._watched: set[str] = set()
        """UUIDs of the GPUs that have such events."""
        self._unwatched: set[str] = set()
        """UUIDs of those that have none, which has been said."""

    def attend(self, bedside: Bedside, period_seconds: float) -> None:
        """See `Probe.attend`. Refused while NVML cannot be opened."""
        while not bedside.leaving():
            with self._source.opened() as nvml:
                self._look(nvml, bedside)
                # NVML stays open while none is to be let go: an Xid between two openings would be missed.
                while not bedside.leaving() and not _any_to_reset(bedside.gpus()) and (held := self._held(bedside)):
                    if not self._wait(nvml, bedside, held, period_seconds):
                        break
                    self._look(nvml, bedside)
            if bedside.leaving():
                return
            held = self._held(bedside)
            if not held:
                bedside.rest(period_seconds)
            elif _any_to_reset(bedside.gpus()):
                with self._source.opened(attach=False) as nvml:
                    self._wait(nvml, bedside, held, period_seconds)

    def _held(self, bedside: Bedside) -> tuple[Gpu, ...]:
        """Those to hear Xids of: nobody needs to reset them."""
        return tuple(gpu for gpu in bedside.gpus() if gpu.uuid in self._watched and not _any_to_reset((gpu,)))

    def _look(self, nvml: Any, bedside: Bedside) -> None:
        xids, self._xids = self._xids, ()
        readings = {gpu.uuid: self._read(nvml, gpu) for gpu in bedside.gpus()}
        bedside.looked(Look(self._wall(), readings, self._driver_load(), xids))

    def _driver_load(self) -> str:
        """sysfs gives each directory a number that it gives to no other in the same boot (fs/kernfs of Linux)."""
        with suppress(OSError):
            return str((self._sysfs_root / "module/nvidia").stat().st_ino)
        return ""

    def _read(self, nvml: Any, gpu: Gpu) -> Reading:
        try:
            handle = _handle(nvml, gpu.place.address)
            if _text(nvml.nvmlDeviceGetUUID(handle)) != gpu.uuid:
                return Reading(lost=True)  # another card is in its place
            return _answers(nvml, handle, watched=self._has_xids(nvml, handle, gpu))
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_GPU_NOT_FOUND):
                return Reading(lost=True)
            if error.value == nvml.NVML_ERROR_RESET_REQUIRED:
                return Reading(reset_required=True)
            return Reading(error=str(error), error_code=label_of(str(error)))

    def _has_xids(self, nvml: Any, handle: Any, gpu: Gpu) -> bool:
        """Whether this GPU's Xids are told, as far as it is for us to say; asked until it is known."""
        if not self._watch_xids or gpu.uuid in self._unwatched:
            return False
        if gpu.uuid in self._watched:
            return True
        try:
            supported = bool(nvml.nvmlDeviceGetSupportedEventTypes(handle) & nvml.nvmlEventTypeXidCriticalError)
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED):
                raise
            supported = False
        if supported:
            self._watched.add(gpu.uuid)
        else:
            self._leave_unwatched(gpu, "the card has no such event")
        return supported

    def _leave_unwatched(self, gpu: Gpu, why: str) -> None:
        self._watched.discard(gpu.uuid)
        self._unwatched.add(gpu.uuid)
        _log.info("Xids not watched", gpu=str(gpu.place.address), why=why)

    # Events.

    def _wait(self, nvml: Any, bedside: Bedside, gpus: Sequence[Gpu], seconds: float) -> bool:
        """Until something happened or `seconds` are over: True. False where this NVML is of no more use."""
        try:
            with _event_set(nvml) as events:
                uuids = self._register(nvml, events, gpus)
                if uuids:
                    return self._wait_for(nvml, bedside, events, uuids, seconds)
                bedside.rest(seconds)
                return True
        except nvml.NVMLError as error:
            for gpu in gpus:
                self._leave_unwatched(gpu, f"NVML: {error}")
            return True

    def _wait_for(
        self, nvml: Any, bedside: Bedside, events: Any, uuids: Mapping[int | None, str], seconds: float
    ) -> bool:
        end = self._clock() + seconds
        while not bedside.leaving() and (left := end - self._clock()) > 0:
            began, asked = self._clock(), min(left, SLICE_SECONDS)
            try:
                event = nvml.nvmlEventSetWait_v2(events, max(1, int(1000 * asked)))
            except nvml.NVMLError as error:
                if error.value == nvml.NVML_ERROR_TIMEOUT:
                    if self._clock() - began < asked / 2:  # it does not wait, so we do
                        bedside.rest(asked)
                    continue
                # A lost GPU does this, and the next look shows which. Never at once: it would be a loop.
                _log.info("wait for Xids broke off", why=str(error))
                bedside.rest(asked)
                return False
            if event.eventType == nvml.nvmlEventTypeXidCriticalError:
                self._note(int(event.eventData), uuids.get(_address_of(event.device)))
                return True
        return True

    def _register(self, nvml: Any, events: Any, gpus: Iterable[Gpu]) -> dict[int | None, str]:
        """UUIDs by the handles that events will name."""
        uuids: dict[int | None, str] = {}
        for gpu in gpus:
            try:
                handle = _handle(nvml, gpu.place.address)
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
            except nvml.NVMLError as error:
                if error.value == nvml.NVML_ERROR_NOT_SUPPORTED:
                    self._leave_unwatched(gpu, f"NVML: {error}")
                    continue
                _log.info("Xids not registered", gpu=str(gpu.place.address), why=str(error))
                continue
            uuids[_address_of(handle)] = gpu.uuid
        return uuids

    def _note(self, xid: int, uuid: str | None) -> None:
        if uuid is None:  # NVIDIA's device plugin marks all GPUs by this; nothing says that it is any of ours
            _log.warning("Xid of an unknown GPU", xid=xid)
            return
        _log.info("Xid reported", xid=xid, uuid=uuid)
        self._xids = (*self._xids, (uuid, xid))


def _any_to_reset(gpus: Iterable[Gpu]) -> bool:
    return any(ailment.kind in _LET_GO for gpu in gpus for ailment in gpu.ailments)


@contextmanager
def _event_set(nvml: Any) -> Any:
    events = nvml.nvmlEventSetCreate()
    try:
        yield events
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlEventSetFree(events)


def _handle(nvml: Any, address: PciAddress) -> Any:
    """By address: by index or UUID NVML may open the other GPUs too."""
    return nvml.nvmlDeviceGetHandleByPciBusId(str(address).encode())


def _address_of(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _answers(nvml: Any, handle: Any, *, watched: bool) -> Reading:
    """Each answer on its own; NVMLError where one of them means the whole GPU."""
    rows = _fact(nvml, nvml.nvmlDeviceGetRemappedRows, handle)
    return Reading(
        recovery=_recovery(nvml, handle),
        remap_pending=bool(rows[2]) if rows else None,
        remap_failed=bool(rows[3]) if rows else None,
        retirement_pending=_truth(_fact(nvml, nvml.nvmlDeviceGetRetiredPagesPendingStatus, handle)),
        uncorrectable=_fact(
            nvml,
            nvml.nvmlDeviceGetTotalEccErrors,
            handle,
            nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            nvml.NVML_VOLATILE_ECC,
        ),
        sram_exceeded=_sram_exceeded(nvml, handle),
        xids_watched=watched,
    )


def _recovery(nvml: Any, handle: Any) -> int | None:
    field = nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
    values = _fact(nvml, nvml.nvmlDeviceGetFieldValues, handle, [field])
    if values is None or values[0].nvmlReturn != nvml.NVML_SUCCESS:
        return None
    return int(values[0].value.uiVal)


def _sram_exceeded(nvml: Any, handle: Any) -> bool | None:
    status = nvml.c_nvmlEccSramErrorStatus_v1_t()
    # pynvml hands on what it is given, and NVML wants the address (nvidia-ml-py 13.615).
    answer = _fact(nvml, nvml.nvmlDeviceGetSramEccErrorStatus, handle, ctypes.byref(status))
    return None if answer is None else bool(status.bThresholdExceeded)


def _truth(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def _fact(nvml: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """One answer; None where this card or library has none, or NVML would not tell."""
    try:
        return call(*arguments)
    except nvml.NVMLError as error:
        if error.value in (
            nvml.NVML_ERROR_NOT_SUPPORTED,
            nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            nvml.NVML_ERROR_NO_PERMISSION,
            nvml.NVML_ERROR_INVALID_ARGUMENT,
            nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
            nvml.NVML_ERROR_NOT_FOUND,
        ):
            return None
        raise


def _text(answer: bytes | str) -> str:
    return answer.decode("utf-8", errors="replace") if isinstance(answer, bytes) else answer
