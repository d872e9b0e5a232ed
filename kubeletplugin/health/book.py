"""Which GPUs this boot has had and what ails each, kept through restarts of the plugin.

A GPU once found stays in the machine until the node is rebooted, whatever becomes of it: claims name it, and somebody must be
able to see why it does not work. Fed by discovery (what is there) and by the watch (how it is).
"""

import errno
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import structlog

from api.hardware import Gpu, LeftOut, Machine
from api.health import Ailment, is_serious
from api.pci import PciAddress
from api.timestamps import utc_now
from kubeletplugin.discovery.source import NVML_ERROR, is_given_away, is_lost, label_of
from kubeletplugin.disk import Disk, content_of
from kubeletplugin.health import bookfile
from kubeletplugin.health.bookfile import Page, plain
from kubeletplugin.health.course import Course, Look, after, failing, missing, rebooted

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What can be said of a GPU's health now."""

    healthy: bool | None
    """None: nobody has looked, or not lately."""
    message: str


class HealthBook:
    """All GPUs of one node. Safe from several threads."""

    def __init__(
        self,
        state_dir: Path,
        disk: Disk,
        *,
        fresh_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = utc_now,
    ) -> None:
        """Reads the file, and touches nothing. A look counts for `fresh_seconds`; a GPU that was not looked at for longer is of
        unknown health."""
        self._path, self._disk = state_dir / bookfile.NAME, disk
        self._fresh, self._clock, self._wall = fresh_seconds, clock, wall
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self._looked: dict[str, tuple[float, bool]] = {}
        self._spoilt = False
        self._complained = False
        self._written = self._read()
        self._boot_id, self._driver_load = self._written.boot_id, self._written.driver_load
        self._gpus = {gpu.uuid: plain(gpu) for gpu in self._written.gpus}
        self._courses = {gpu.uuid: Course(gpu.ailments) for gpu in self._written.gpus}
        self._inherited = frozenset((gpu.uuid, ailment) for gpu in self._written.gpus for ailment in gpu.ailments)

    def was_known(self, uuid: str, ailment: Ailment) -> bool:
        """Whether a process before this one knew of it."""
        return (uuid, ailment) in self._inherited

    def has_found(self, boot_id: str) -> bool:
        """Whether any GPU was found in this boot already."""
        with self._lock:
            return boot_id == self._boot_id and bool(self._gpus)

    def machine(self, found: Machine) -> Machine:
        """The machine to tell others of: what was found, the GPUs of this boot that are missing, and what ails each."""
        with self._lock:
            self._boot(found)
            present = {gpu.uuid: plain(gpu) for gpu in found.gpus}
            kept = self._missing(found, present)
            self._gpus = {**present, **kept}
            self._courses = {uuid: course for uuid, course in self._courses.items() if uuid in self._gpus}
            gpus = sorted(map(self._ailing, self._gpus.values()), key=lambda gpu: (gpu.place.address, gpu.uuid))
            told = {str(gpu.place.address) for gpu in kept.values()}
        self._save()
        left_out = tuple(item for item in found.left_out if item.what not in told)
        return replace(found, gpus=tuple(gpus), left_out=left_out)

    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs of this boot, lost ones too, with their ailments."""
        with self._lock:
            return tuple(self._ailing(gpu) for gpu in self._gpus.values())

    def looked(self, look: Look) -> bool:
        """Write down what a look showed; whether any GPU's ailments changed."""
        now, changed = self._clock(), False
        with self._lock:
            reloaded = bool(look.driver_load and self._driver_load) and look.driver_load != self._driver_load
            self._driver_load = look.driver_load or self._driver_load
            for uuid in self._gpus:
                reading = look.readings.get(uuid)
                before = self._courses.get(uuid, Course())
                course = after(before, reading, look, uuid, reloaded=reloaded)
                self._courses[uuid] = course
                if reading is not None and reading.error is None:
                    self._looked[uuid] = (now, reading.xids_watched)
                if course != before:
                    changed = True
                    self._say(uuid, before, course)
        self._save()
        return changed

    def verdict(self, uuid: str) -> Verdict:
        """What the kubelet is told of one GPU: never that it is well when it has not answered."""
        with self._lock:
            course = self._courses.get(uuid, Course())
            at, watched = self._looked.get(uuid, (None, False))
        ailments = course.ailments
        serious = [ailment for ailment in ailments if is_serious(ailment)]
        if serious:
            return Verdict(healthy=False, message=_sentence(serious))
        if at is None:
            answered = "NVML has answered for it with an error" if course.failures else "nobody has looked at it yet"
            return Verdict(healthy=None, message=answered)
        age = self._clock() - at
        if age > self._fresh:
            return Verdict(healthy=None, message=f"nobody has looked at it for {age:.0f} s")
        return Verdict(healthy=True, message=_sentence(ailments) or ("" if watched else "Xids are not watched"))

    def _boot(self, found: Machine) -> None:
        """After a reboot all begins anew, but for what the cards themselves remember."""
        if found.boot_id == self._boot_id:
            return
        self._boot_id = found.boot_id
        self._gpus, self._looked, self._driver_load = {}, {}, ""
        self._courses = {uuid: rebooted(course) for uuid, course in self._courses.items()}

    def _missing(self, found: Machine, present: dict[str, Gpu]) -> dict[str, Gpu]:
        """The GPUs of this boot that are not there now, and why that is."""
        why = {item.what: item for item in found.left_out}
        addresses = {gpu.place.address for gpu in present.values()}
        minors = {gpu.minor for gpu in present.values()}
        kept = {}
        for uuid, gpu in self._gpus.items():
            item = why.get(str(gpu.place.address))
            if uuid in present or not _is_missed(gpu.place.address, item, addresses):
                continue
            # A driver that was loaded anew may have given its minor to another.
            kept[uuid] = replace(gpu, minor=None) if gpu.minor in minors else gpu
            before = self._courses.get(uuid, Course())
            if item is None or is_lost(item) or not item.why.startswith(NVML_ERROR):
                course = missing(before, self._wall())
            elif before.ailments:
                course = before  # the watch has said it, better
            else:
                error = item.why.removeprefix(NVML_ERROR)
                course = failing(before, label_of(error), error, self._wall())
            if course != before:
                self._courses[uuid] = course
                self._say(uuid, before, course)
        return kept

    def _ailing(self, gpu: Gpu) -> Gpu:
        ailments = self._courses.get(gpu.uuid, Course()).ailments
        return replace(gpu, ailments=ailments) if ailments else gpu

    def _say(self, uuid: str, before: Course, course: Course) -> None:
        gpu = str(self._gpus[uuid].place.address)
        old, new = _keys(before), _keys(course)
        for ailment in course.ailments:
            if (ailment.kind, ailment.code) not in old:
                say = _log.warning if is_serious(ailment) else _log.info
                say(
                    "GPU ailing",
                    gpu=gpu,
                    kind=ailment.kind,
                    code=ailment.code,
                    why=ailment.message,
                    remedy=ailment.remedy,
                )
        for ailment in before.ailments:
            if (ailment.kind, ailment.code) not in new:
                _log.info("GPU well again", gpu=gpu, kind=ailment.kind, code=ailment.code, since=ailment.since)

    # On disk.

    def _read(self) -> Page:
        try:
            return bookfile.decode(content_of(self._path))
        except FileNotFoundError:
            return Page()
        except OSError as error:
            if error.errno not in (errno.EISDIR, errno.ENXIO):  # a device, a FIFO: nothing that we wrote
                _log.warning("health book not read", path=str(self._path), why=error.strerror)
                return Page()
            problem = f"is {error.strerror}"
        except ValueError as error:
            problem = str(error)
        self._spoilt = True
        _log.error("health book damaged", path=str(self._path), problem=problem, then="it is set aside")
        return Page()

    def _save(self) -> None:
        """Where the disk does not take it, the ailments are told all the same, and it is tried again at the next look."""
        with self._saving:
            with self._lock:
                gpus = sorted(map(self._ailing, self._gpus.values()), key=lambda gpu: (gpu.place.address, gpu.uuid))
                page = Page(self._boot_id, self._driver_load, tuple(gpus))
            if page == self._written:
                return
            try:
                if self._spoilt:
                    self._disk.move(self._path, self._path.with_name(f"{self._path.name}.damaged"))
                    self._spoilt = False
                self._disk.write(self._path, bookfile.encode(page))
            except OSError as error:
                if not self._complained:
                    _log.warning("health book not written", path=str(self._path), why=error.strerror or str(error))
                self._complained = True
                return
            self._written, self._complained = page, False


def _is_missed(address: PciAddress, item: LeftOut | None, taken: set[PciAddress]) -> bool:
    """Not another card in its place, and not given to somebody else on purpose."""
    return address not in taken and not (item is not None and is_given_away(item))


def _keys(course: Course) -> set[tuple[str, str]]:
    return {(ailment.kind, ailment.code) for ailment in course.ailments}


def _sentence(ailments: list[Ailment] | tuple[Ailment, ...]) -> str:
    return "; ".join(ailment.sentence for ailment in ailments)
