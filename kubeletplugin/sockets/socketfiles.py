"""Socket files: made whole, recognised, and removed only by whom they belong to.

gRPC unlinks whatever socket has the name it binds to, and when a server ends it unlinks that name again, whoever has it by then
(seen with grpcio 1.85.3): the old instance of an update would take the new one's socket away. So a socket is bound under a
temporary name, restricted, and renamed: nobody sees it half made, and gRPC's unlinking meets a name that is gone.
"""

import contextlib
import errno
import os
import secrets
import socket
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import grpc
import structlog

from api.refusals import BadInput, Refused
from kubeletplugin.sockets.paths import TEMPORARY_HEX, temporary_prefix

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SocketFile:
    """A socket of ours in the file system. Its inode cannot be given to another file while we listen."""

    path: Path
    device: int
    inode: int

    def in_place(self) -> bool:
        """Whether the path still leads to us."""
        try:
            found = self.path.lstat()
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (self.device, self.inode)

    def remove(self) -> None:
        """Remove it, unless it is gone or another's by now. Call it while still listening."""
        if self.in_place():
            with contextlib.suppress(OSError):
                self.path.unlink()


def listen(server: grpc.Server, path: Path, driver: str) -> SocketFile:
    """Let the server, not started yet, listen at `path`: mode 0600, replacing a socket of that name.

    Refused(BadInput) when the path is taken by something else or cannot be made.
    """
    temporary = path.with_name(temporary_prefix(driver) + secrets.token_hex(TEMPORARY_HEX // 2))
    try:
        if not is_socket(path) and os.path.lexists(path):
            raise Refused(BadInput(str(path), "is no socket, but lies where one has to be", "move it away"))
        try:
            server.add_insecure_port(address(temporary))
        except RuntimeError as error:
            remedy = "check that the directory can be written to and lies on a file system that takes sockets"
            raise Refused(BadInput(str(path), "no socket can be made here", remedy)) from error
        temporary.chmod(0o600)
        if is_socket(path) and not nobody_listens(path):
            # Two instances with the same names: only the pod's UID in the names lets them live side by side.
            _log.warning("socket of a running process replaced", path=str(path))
        # The kubelet registers anew on a removal and an appearance; renaming over the old name would show it only the latter.
        path.unlink(missing_ok=True)
        temporary.rename(path)
        made = path.lstat()
    except OSError as error:
        raise Refused(
            BadInput(str(path), f"no socket can be made here: {error.strerror}", "mend the directory")
        ) from error
    return SocketFile(path, made.st_dev, made.st_ino)


def address(path: Path) -> str:
    """How gRPC is told of a socket path: as a URI, so `%`, `#` and `?` have to be escaped."""
    return f"unix://{quote(str(path))}"


def is_socket(path: Path) -> bool:
    """Whether a socket, and no link to one, is there."""
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return False


def nobody_listens(path: Path) -> bool:
    """Whether it is the socket of a process that is gone. A busy or unreachable one is not."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as probe:
        return is_socket(path) and probe.connect_ex(str(path)) == errno.ECONNREFUSED


def sweep(directory: Path, names: Iterable[str]) -> tuple[Path, ...]:
    """Remove the named sockets that nobody listens on; what was removed."""
    dead = [directory / name for name in names if nobody_listens(directory / name)]
    for path in dead:
        with contextlib.suppress(OSError):
            path.unlink()
    return tuple(dead)
