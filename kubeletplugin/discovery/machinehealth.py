"""What a machine file says of a GPU's health: `health: {lost: true}`.

lost: true                # it has fallen off the bus
xids: [48]                # Xids since it was last reset; taking one out is the reset
recovery: 1               # NVML_GPU_RECOVERY_ACTION_*: 1 reset, 2 reboot, 3 drain, 4 drain and reset
remapFailed: true         # also remapPending, retirementPending, sramExceeded
uncorrectable: 3          # memory errors since the driver was loaded
error: Unknown Error      # NVML answers everything with this
unwatched: true           # the card has no events, so Xids are not seen
"""

from dataclasses import dataclass

from kubeletplugin.discovery.fields import Fields, no_unknown

_KNOWN = (
    "lost",
    "xids",
    "recovery",
    "remapFailed",
    "remapPending",
    "retirementPending",
    "sramExceeded",
    "uncorrectable",
    "error",
    "unwatched",
)
_XID_MAX = 1 << 16


@dataclass(frozen=True, slots=True)
class GivenHealth:
    """One GPU's, as it is written. None where nothing is said."""

    lost: bool = False
    xids: frozenset[int] = frozenset()
    recovery: int | None = None
    remap_failed: bool | None = None
    remap_pending: bool | None = None
    retirement_pending: bool | None = None
    sram_exceeded: bool | None = None
    uncorrectable: int | None = None
    error: str | None = None
    unwatched: bool = False


def health_of(item: Fields) -> GivenHealth:
    """The health of one entry of `gpus`; what is wrong with it is noted."""
    said = item.mapping("health", required=False)
    no_unknown(said, _KNOWN)
    return GivenHealth(
        lost=bool(said.truth("lost")),
        xids=frozenset(said.integers("xids", 1, _XID_MAX)),
        recovery=said.integer("recovery", 0, 255),
        remap_failed=said.truth("remapFailed"),
        remap_pending=said.truth("remapPending"),
        retirement_pending=said.truth("retirementPending"),
        sram_exceeded=said.truth("sramExceeded"),
        uncorrectable=said.integer("uncorrectable", 0, 1 << 40),
        error=said.text("error", required=False) or None,
        unwatched=bool(said.truth("unwatched")),
    )
