"""One directory tree under its two names: where this process sees it, and where the runtime on the host does.

The plugin runs in a container with the driver's tree mounted somewhere; a CDI file is read by the runtime, outside.
"""

import errno
import os
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

_LINKS_MAX = 40
"""As in the kernel (path_resolution(7))."""


@lru_cache(maxsize=1024)
def _joined(root: Path, path: str) -> Path:
    """Remembered, for every prepare asks for the same few: a Path costs more than the look at it."""
    return root / path.lstrip("/")


@dataclass(frozen=True, slots=True)
class Root:
    """A directory that holds `usr/lib`, `dev` and so on, as `/` does."""

    seen: Path
    """By this process."""
    host: Path
    """By the runtime."""

    @classmethod
    def same(cls, path: Path) -> "Root":
        """A tree that both see at one place: the plugin outside a container."""
        return cls(path, path)

    def at(self, path: str) -> Path:
        """Where to look for `path`, which is absolute within the root."""
        return _joined(self.seen, path)

    def on_host(self, path: str) -> str:
        """What a CDI file says for `path`, which is absolute within the root."""
        return str(_joined(self.host, path))

    def host_path_of(self, seen: str) -> str | None:
        """The host's name for a path that this process sees, None for one outside the root."""
        try:
            return str(PurePosixPath(self.host) / PurePosixPath(seen).relative_to(self.seen))
        except ValueError:
            return None

    def resolve(self, path: str) -> str | None:
        """`path` without symbolic links, absolute within the root; None where it leads to nothing.

        Links are followed as if the root were `/`: a driver container has `/lib64 -> /usr/lib64`, which read from outside
        would lead to the files of somebody else. The same holds for the runtime, so CDI files name resolved paths.
        """
        ahead = deque(path.split("/"))
        behind: list[str] = []
        links = 0
        seen = str(
            self.seen
        )  # joined as text: this is most of what a repeated prepare does, and Path costs ten times more
        while ahead:
            part = ahead.popleft()
            if part in {"", "."}:
                continue
            if part == "..":
                del behind[-1:]
                continue
            try:
                target = os.readlink("/".join((seen, *behind, part)))  # noqa: PTH115  # see above
            except OSError as error:
                if error.errno != errno.EINVAL:  # EINVAL: there, and no link
                    return None
                behind.append(part)
                continue
            links += 1
            if links > _LINKS_MAX:
                return None
            if target.startswith("/"):
                behind.clear()
            ahead.extendleft(reversed(target.split("/")))
        return "/" + "/".join(behind)
