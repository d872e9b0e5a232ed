"""The file operations that must survive a crash.

All that the plugin keeps goes through here, so that tests can fill the disk or stop the process at any one operation.
"""

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path
from typing import Protocol

TEMPORARY_SUFFIX = ".tmp"
"""Of files not complete yet. CDI runtimes read `.json` and `.yaml` only, so they never see one."""

_CHUNK = 65536


class Disk(Protocol):
    """What records and CDI files need of a file system. Every method raises OSError."""

    def write(self, path: Path, content: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
        """Replace the file as a whole: a reader finds the old content or the new, and so does a machine that lost power.

        Not `durable`: after a power loss it may be the old content, the new, or a file that is empty or cut off. For what
        means nothing after a reboot."""

    def remove(self, path: Path) -> None:
        """Remove the file durably; a file that is not there is removed already."""

    def move(self, path: Path, to: Path) -> None:
        """Rename durably, replacing `to`."""

    def link(self, path: Path, target: str) -> None:
        """Make a symbolic link; FileExistsError when `path` exists. Atomic between processes, so it serves as a claim on
        a name; not durable, so it must be possible to derive it anew."""

    def unlink(self, path: Path) -> None:
        """Remove the link, or nothing."""


class LocalDisk:
    """The real one."""

    def write(self, path: Path, content: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
        target = str(path)
        temporary = f"{target}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}"
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
            try:
                os.fchmod(descriptor, mode)
                view = memoryview(content)
                while view:
                    view = view[os.write(descriptor, view) :]
                if durable:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, target)  # noqa: PTH105  # as text: a Path costs as much as the call itself
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108  # as above
            raise
        if durable:
            _sync(os.path.dirname(target))  # noqa: PTH120  # as above

    def remove(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            _sync(path.parent)

    def move(self, path: Path, to: Path) -> None:
        path.replace(to)
        _sync(to.parent)
        if to.parent != path.parent:
            _sync(path.parent)

    def link(self, path: Path, target: str) -> None:
        os.symlink(target, path)  # noqa: PTH211  # as above

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)


def content_of(path: Path | str) -> bytes:
    """What the file holds. OSError, EISDIR or ENXIO for what is no regular file: a FIFO would let its reader wait for ever, an
    endless device fill the memory.

    Read without Python's layers of buffers: several of these are part of every call.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            number = errno.EISDIR if stat.S_ISDIR(mode) else errno.ENXIO  # as open(2) says of a socket
            raise OSError(number, "not a regular file", str(path))
        found = [part := os.read(descriptor, _CHUNK)]
        while part:
            found.append(part := os.read(descriptor, _CHUNK))
        return b"".join(found)
    finally:
        os.close(descriptor)


def _sync(directory: Path | str) -> None:
    """A rename is durable once its directory is."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
