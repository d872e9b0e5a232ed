"""How a bearer token is come by, including one that changes while we run."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import structlog

from api.refusals import BadInput, Refused

REREAD_SECONDS = 60.0
"""How old a token read from a file may get. The kubelet rotates its projected tokens at 80 % of their life, and the old one
stays valid meanwhile (Kubernetes docs, "Launch a Pod using service account token projection")."""

_log = structlog.get_logger(__name__)


class TokenSource(Protocol):
    """Whoever knows the token of now. Safe from several threads."""

    def token(self) -> str | None:
        """The token to send, None to send none."""

    def expire(self) -> None:
        """The server did not take it: look again at the next call of `token`."""


def is_sendable(token: str) -> bool:
    """Whether a token can stand in a header at all: visible ASCII, in one line (RFC 6750 allows less still)."""
    return all("!" <= letter <= "~" for letter in token)


class FixedToken:
    """A token written into the kubeconfig."""

    def __init__(self, text: str) -> None:
        self._text = text

    def token(self) -> str | None:
        return self._text

    def expire(self) -> None:
        """Nothing else to offer."""


class TokenFile:
    """A token in a file that somebody replaces before it expires."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Reads once, so that a wrong path is said at the start. Raises Refused."""
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._text = self._read()
        self._read_at = clock()

    def token(self) -> str | None:
        """The token, at most a minute old. If the file cannot be read any more, the last one is still the best guess."""
        with self._lock:
            now = self._clock()
            if now - self._read_at >= REREAD_SECONDS:
                self._read_at = now
                try:
                    self._text = self._read()
                except Refused as refused:
                    _log.warning("token file could not be read again", path=str(self._path), why=refused.reason.what)
            return self._text

    def expire(self) -> None:
        with self._lock:
            self._read_at = self._clock() - REREAD_SECONDS

    def _read(self) -> str:
        try:
            text = self._path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            problem = error.strerror if isinstance(error, OSError) else "holds no token"
            raise Refused(BadInput(str(self._path), f"the token cannot be read: {problem}", _REMEDY)) from error
        if not text:
            raise Refused(BadInput(str(self._path), "the token file is empty", _REMEDY))
        if not is_sendable(text):
            raise Refused(BadInput(str(self._path), "the token cannot be read: holds no token", _REMEDY))
        return text


class AskedToken:
    """A token that some other code provides, and renews by itself: the exec plugins of the official client."""

    def __init__(self, ask: Callable[[], str | None]) -> None:
        self._ask = ask
        self._lock = threading.Lock()

    def token(self) -> str | None:
        with self._lock:
            return self._ask()

    def expire(self) -> None:
        """It knows the expiry itself, and has no way to be told."""


_REMEDY = "mount a service account token there, or name the right file"
