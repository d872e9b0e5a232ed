"""What preparing a claim needs of CDI: one file for each claim.

The files themselves are `kubeletplugin.cdi`'s business; the adapter here speaks for it.
"""

import time
from collections.abc import Callable, Iterable
from typing import Protocol

from api.hardware import Machine
from kubeletplugin.cdi import naming
from kubeletplugin.cdi.content import ClaimDevice, Content, claim_spec
from kubeletplugin.cdi.files import CdiFiles
from kubeletplugin.cdi.spec import Spec
from kubeletplugin.claims.record import Record, gpu_of


class CdiWriter(Protocol):
    """A claim's CDI file. Methods raise OSError for the disk's trouble, and Refused where the content cannot be made."""

    def write(self, record: Record, machine: Machine) -> None:
        """Write the file for these devices, all of which the machine has. Complete or not at all."""

    def matches(self, record: Record, machine: Machine) -> bool:
        """Whether the file there is exactly what `write` would write now."""

    def readable(self, uid: str) -> bool | None:
        """Whether the claim's file is one that a runtime can read, whatever it says; None where there is none of ours."""

    def remove(self, uid: str) -> None:
        """Remove the claim's file, or nothing."""

    def uids(self) -> Iterable[str]:
        """Claims with a file of this driver, whatever it says."""

    def sweep(self) -> None:
        """Remove what writes left when they were cut off."""

    def ids(self, uid: str, device: str, share_id: str | None) -> tuple[str, ...]:
        """What the kubelet is told for one device: fully qualified CDI device names."""


class ClaimInjection:
    """CdiWriter on the files of `kubeletplugin.cdi`."""

    def __init__(
        self, driver: str, files: CdiFiles, content: Callable[[], Content], *, epoch: Callable[[], float] = time.time
    ) -> None:
        """`content` is asked for at each use: which source it is may change with the machine. `epoch` as time.time."""
        self._driver, self._files, self._content, self._epoch = driver, files, content, epoch

    def write(self, record: Record, machine: Machine) -> None:
        self._files.write(record.claim.uid, self._spec(record, machine))

    def matches(self, record: Record, machine: Machine) -> bool:
        return self._files.says(record.claim.uid, self._spec(record, machine))

    def readable(self, uid: str) -> bool | None:
        return self._files.readable(uid)

    def remove(self, uid: str) -> None:
        self._files.remove(uid)

    def uids(self) -> Iterable[str]:
        return self._files.claims()

    def sweep(self) -> None:
        self._files.sweep(self._epoch())

    def ids(self, uid: str, device: str, share_id: str | None) -> tuple[str, ...]:
        return (naming.cdi_id(self._driver, uid, device, share_id),)

    def _spec(self, record: Record, machine: Machine) -> Spec:
        gpus = ((item, gpu_of(machine, item.device)) for item in record.devices)
        devices = [ClaimDevice(item.device, gpu, item.share_id) for item, gpu in gpus if gpu is not None]
        return claim_spec(self._driver, record.claim.uid, devices, machine, self._content())
