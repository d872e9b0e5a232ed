"""How the GPUs of a machine file are, by what the file says of them."""

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from api.timestamps import utc_now
from kubeletplugin.discovery import machinefile
from kubeletplugin.discovery.machinehealth import GivenHealth
from kubeletplugin.discovery.source import label_of
from kubeletplugin.health.course import Look, Reading
from kubeletplugin.health.watch import Bedside


class SimulatedProbe:
    """Reads the file again each time, so that GPUs fall ill and recover as it is edited."""

    def __init__(self, machine_file: Path, node: str, *, wall: Callable[[], datetime] = utc_now) -> None:
        self._path, self._node, self._wall = machine_file, node, wall
        self._read: tuple[bytes, Mapping[str, Reading]] | None = None

    def attend(self, bedside: Bedside, period_seconds: float) -> None:
        """See `Probe.attend`. Refused while the file is malformed."""
        while not bedside.leaving():
            bedside.looked(Look(self._wall(), self._readings()))
            bedside.rest(period_seconds)

    def _readings(self) -> Mapping[str, Reading]:
        """By UUID. Parsed again only when the file changed."""
        try:
            content = self._path.read_bytes()
        except OSError:
            content = b""  # `machinefile.read` says it better
        if self._read is None or self._read[0] != content:
            said = machinefile.read(self._path, node=self._node).health
            self._read = (content, {uuid: _reading(health) for uuid, health in said.items()})
        return self._read[1]


def _reading(said: GivenHealth) -> Reading:
    return Reading(
        lost=said.lost,
        error=said.error,
        error_code=label_of(said.error or ""),
        recovery=said.recovery or 0,
        remap_failed=bool(said.remap_failed),
        remap_pending=bool(said.remap_pending),
        # A card that knows of retirement is one from before row remapping.
        retirement_pending=said.retirement_pending,
        uncorrectable=said.uncorrectable or 0,
        sram_exceeded=bool(said.sram_exceeded),
        xids=said.xids,
        xids_watched=not said.unwatched,
    )
