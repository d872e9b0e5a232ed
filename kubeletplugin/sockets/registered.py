"""Whether the kubelet holds on to this plugin, judged by what can be seen from here.

The kubelet says when it registers a plugin but never that it forgot one, or that it is gone itself. Its health stream tells:
that closes within 0.1 s of either (measured with 1.37.2, facts: cluster.md). Kubelets that open no stream leave the
registration call, and our own sockets, whose removal makes the kubelet forget us (docs/architecture.md).

    sign                 what it changes
    ------------------   ----------------------------------------------------------------------
    Notified, no error   the notification counts from now on
    Notified, an error   the notification is void
    StreamOpened         one more stream
    StreamClosed         one stream less, and the notification is void: whoever sent it may be gone
    SocketsMissing       the notification is void

    registered = a stream is open
              or the notification counts, and no stream was ever seen
              or the notification counts, and has for STREAM_GRACE_SECONDS
"""

from dataclasses import dataclass, replace
from typing import assert_never

STREAM_GRACE_SECONDS = 15.0
"""How long a kubelet that is known to open streams may take after a registration; it tries every 5 s."""


@dataclass(frozen=True, slots=True)
class Notified:
    """The kubelet called NotifyRegistrationStatus."""

    error: str | None
    """Why it did not register us; None when it did."""
    at: float
    """Seconds of a monotonic clock."""


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """The kubelet opened a health stream."""


@dataclass(frozen=True, slots=True)
class StreamClosed:
    """A health stream ended, for whatever reason."""


@dataclass(frozen=True, slots=True)
class SocketsMissing:
    """One of our sockets is not where it was made."""


Sign = Notified | StreamOpened | StreamClosed | SocketsMissing


@dataclass(frozen=True, slots=True)
class Seen:
    """All that matters of the signs so far; `Seen()` at the start."""

    streams: int = 0
    stream_ever: bool = False
    notified_at: float | None = None
    """When the notification that counts came."""


def after(seen: Seen, sign: Sign) -> Seen:
    """What is known once `sign` was seen too."""
    match sign:
        case Notified(error=None, at=at):
            return replace(seen, notified_at=at)
        case Notified() | SocketsMissing():
            return replace(seen, notified_at=None)
        case StreamOpened():
            return replace(seen, streams=seen.streams + 1, stream_ever=True)
        case StreamClosed():
            return replace(seen, streams=max(0, seen.streams - 1), notified_at=None)
    assert_never(sign)


def registered(seen: Seen, now: float) -> bool:
    """Whether the kubelet holds on to us, `now` on the clock of `Notified.at`."""
    if seen.streams > 0:
        return True
    if seen.notified_at is None:
        return False
    return not seen.stream_ever or now >= seen.notified_at + STREAM_GRACE_SECONDS


def next_change(seen: Seen, now: float) -> float | None:
    """When time alone will turn `registered` to true; None when only a sign can change it."""
    if seen.notified_at is None or registered(seen, now):
        return None
    return seen.notified_at + STREAM_GRACE_SECONDS
