"""A disk that fails, or stops the process, at its n-th operation."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from kubeletplugin.disk import TEMPORARY_SUFFIX, Disk, LocalDisk


class Crash(BaseException):
    """The process is killed here. No `except Exception` sees it, as nothing in a killed process runs on."""


class CountingDisk:
    """A real disk with an accident.

    `at` counts operations from 1; None lets everything pass. `accident` is Crash or an errno. A crash in a write leaves half
    of the temporary file; `late` lets the operation happen first and then strikes, as when the answer is lost. `lasting` makes
    every operation from `at` on fail, as a file system mounted read-only does.
    """

    def __init__(
        self,
        at: int | None = None,
        accident: type[Crash] | int = Crash,
        *,
        late: bool = False,
        lasting: bool = False,
        disk: Disk | None = None,
    ) -> None:
        self.count = 0
        self.happened = False
        self.log: list[str] = []
        self._at, self._accident, self._late, self._lasting = at, accident, late, lasting
        self._disk = disk or LocalDisk()

    def write(self, path: Path, content: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
        def half() -> None:
            path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}").write_bytes(content[: len(content) // 2])

        self._do("write", path, lambda: self._disk.write(path, content, mode=mode, durable=durable), half)

    def remove(self, path: Path) -> None:
        self._do("remove", path, lambda: self._disk.remove(path))

    def move(self, path: Path, to: Path) -> None:
        self._do("move", path, lambda: self._disk.move(path, to))

    def link(self, path: Path, target: str) -> None:
        self._do("link", path, lambda: self._disk.link(path, target))

    def unlink(self, path: Path) -> None:
        self._do("unlink", path, lambda: self._disk.unlink(path))

    def _do(self, verb: str, path: Path, act: Callable[[], None], cut_off: Callable[[], None] = lambda: None) -> None:
        self.count += 1
        self.log.append(f"{verb} {path.parent.name}/{path.name}")
        strikes = self._at is not None and (self.count >= self._at if self._lasting else self.count == self._at)
        if not strikes:
            act()
            return
        self.happened = True
        if self._late:
            act()
        if isinstance(self._accident, int):
            raise OSError(self._accident, os.strerror(self._accident), str(path))
        if not self._late:
            cut_off()
        raise self._accident


FULL, READ_ONLY, BROKEN = errno.ENOSPC, errno.EROFS, errno.EIO
