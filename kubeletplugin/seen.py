"""The plugin at one moment, for whoever watches it from outside."""

from dataclasses import dataclass

from api.hardware import Machine
from kubeletplugin.claims.record import Record


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known without asking anybody outside of the process but the disk."""

    machine: Machine | None
    """None before the hardware was found."""
    records: tuple[Record, ...]
    """Of all claims that are prepared here."""
    registered: bool
    """Whether the kubelet holds on to the plugin."""
    why_not_ready: str | None
    report_age_seconds: float | None
    """Since the API server last took the sign of life; None before the first."""
    events_lost: int
