"""A node with claims: the API's claims, the machine, the clock and the disk, to let Claims loose in."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from api.claims import Claim, Config, PodRef, PreparedDevice, Result
from api.hardware import Gpu, Machine
from api.health import Ailment
from api.names import ClaimRef, gpu_device_name
from api.pci import PciAddress, Place
from api.refusals import BadInput, Reason, Refused
from kubeletplugin.cdi.files import CdiFiles
from kubeletplugin.cdi.spec import Edits
from kubeletplugin.claims.injection import ClaimInjection
from kubeletplugin.claims.locks import ClaimLocks
from kubeletplugin.claims.prepare import Claims
from kubeletplugin.claims.states import Event
from kubeletplugin.disk import Disk, LocalDisk

DRIVER = "gpu.lanewise.dev"
NODE = "node-a"
POOL = f"{NODE}/{DRIVER}"


def a_gpu(bus: int, **fields: object) -> Gpu:
    """The GPU at 0000:<bus>:00.0."""
    gpu = Gpu(Place(PciAddress(0, bus, 0, 0)), uuid=f"GPU-{bus:02x}", minor=bus, product_name="NVIDIA H100")
    return replace(gpu, **fields)


def device(number: int) -> str:
    """Name of the world's n-th GPU, from 0."""
    return gpu_device_name(PciAddress(0, 0x65 + number, 0, 0))


def a_machine(gpus: int = 4, *, boot_id: str = "boot-1") -> Machine:
    return Machine(gpus=tuple(a_gpu(0x65 + number) for number in range(gpus)), boot_id=boot_id)


def a_ref(number: int = 1, *, name: str | None = None, namespace: str = "team-a") -> ClaimRef:
    return ClaimRef(namespace, name or f"train-{number}", f"uid-{number}")


def a_result(number: int, *, request: str = "gpu", **fields: object) -> Result:
    return replace(Result(request=request, driver=DRIVER, pool=POOL, device=device(number)), **fields)


def a_claim(ref: ClaimRef, *results: Result | int, configs: tuple[Config, ...] = (), allocated: bool = True) -> Claim:
    """A claim with these results; a number stands for that GPU under request `gpu`."""
    made = tuple(a_result(item) if isinstance(item, int) else item for item in results)
    return Claim(ref, allocated=allocated, results=made, configs=configs)


class PlainContent:
    """CDI content that needs no files."""

    def common(self, machine: Machine) -> Edits:
        return Edits(env=("COMMON=1",))

    def device(self, machine: Machine, gpu: Gpu) -> Edits:
        return Edits(env=(f"NODE_{gpu.uuid.replace('-', '_')}=/dev/nvidia{gpu.minor}",))


@dataclass
class World:
    """What surrounds Claims. Change the fields; every Claims made by `claims` sees it."""

    root: Path
    machine: Machine | None = field(default_factory=a_machine)
    api: dict[tuple[str, str], Claim] = field(default_factory=dict)
    api_down: bool = False
    now: float = 1000.0
    told: list[tuple[ClaimRef, Reason]] = field(default_factory=list)
    told_of: list[Event] = field(default_factory=list)
    """What was being done, for each of `told`."""
    told_pods: list[tuple[PodRef, ...]] = field(default_factory=list)
    """Who may use the claim, for each of `told`."""
    done: list[tuple[Event, str | None, float]] = field(default_factory=list)
    """Calls as they ended."""
    fetched: int = 0
    epoch: float = 0.0
    """What the age of temporary CDI files is counted to: far in the future, and every one is old."""
    while_fetching: Callable[[], None] = lambda: None
    told_before: Callable[[str, Ailment], bool] = lambda *_: False
    """What an earlier process knew of, by UUID."""
    content: PlainContent = field(default_factory=PlainContent)

    @property
    def state_dir(self) -> Path:
        return self.root / "plugin"

    @property
    def cdi_dir(self) -> Path:
        return self.root / "cdi"

    def claims(self, disk: Disk | None = None, *, patience_seconds: float = 5.0) -> Claims:
        """A plugin process, so to speak: nothing but the disk is shared between two of them."""
        disk = disk or LocalDisk()
        locks = ClaimLocks(self.state_dir / "locks", patience_seconds=patience_seconds)
        return Claims(
            driver=DRIVER,
            node=NODE,
            state_dir=self.state_dir,
            disk=disk,
            cdi=ClaimInjection(
                DRIVER, CdiFiles(self.cdi_dir, DRIVER, disk), lambda: self.content, epoch=lambda: self.epoch
            ),
            machine=lambda: self.machine,
            why_no_machine=lambda: "libnvidia-ml.so.1 is not under /run/nvidia/driver yet",
            fetch=self.fetch,
            tell=self.tell,
            done=lambda *call: self.done.append(call),
            since_boot=self.clock,
            wall=lambda: datetime(2026, 11, 30, tzinfo=UTC) + timedelta(seconds=self.now),
            locks=locks,
            told_before=lambda *asked: self.told_before(*asked),  # noqa: PLW0108  # tests set another one later
        )

    def tell(self, ref: ClaimRef, reason: Reason, event: Event, pods: tuple[PodRef, ...] = ()) -> None:
        self.told.append((ref, reason))
        self.told_pods.append(pods)
        self.told_of.append(event)

    def clock(self) -> float:
        self.now += 0.001
        return self.now

    def fetch(self, ref: ClaimRef) -> Claim | None:
        self.fetched += 1
        if self.api_down:
            raise Refused(BadInput("https://10.0.0.1:6443", "connection refused", "see whether the API server runs"))
        found = self.api.get((ref.namespace, ref.name))
        self.while_fetching()
        return found

    def allocate(self, claim: Claim) -> ClaimRef:
        self.api[claim.ref.namespace, claim.ref.name] = claim
        return claim.ref

    def delete(self, ref: ClaimRef) -> None:
        self.api.pop((ref.namespace, ref.name), None)

    def reboot(self, boot_id: str) -> None:
        """/var/run is empty, the clock starts anew, and links made last are lost."""
        assert self.machine is not None
        self.machine = replace(self.machine, boot_id=boot_id)
        self.now = 10.0
        self.empty_cdi()
        for path in (self.state_dir / "devices").iterdir():
            path.unlink()

    def empty_cdi(self) -> None:
        if self.cdi_dir.exists():
            for path in self.cdi_dir.iterdir():
                path.unlink()

    def recorded(self) -> set[str]:
        return {path.name.removesuffix(".json") for path in (self.state_dir / "claims").glob("*.json")}

    def holds(self) -> dict[str, str]:
        return {path.name: str(path.readlink()) for path in (self.state_dir / "devices").iterdir()}

    def cdi_uids(self) -> set[str]:
        prefix = f"{DRIVER}-claim_"
        return {path.name.removeprefix(prefix).removesuffix(".json") for path in self.cdi_dir.glob("*.json")}

    def quarantined(self) -> list[str]:
        return sorted(path.name for path in (self.state_dir / "quarantine").iterdir())

    def leftovers(self) -> list[str]:
        """Locks and temporary files: none when nobody is at work."""
        found = [path for path in self.state_dir.rglob("*") if path.suffix in {".lock", ".tmp"}]
        return sorted(str(path.relative_to(self.state_dir)) for path in found)

    def is_clear(self) -> bool:
        return not (self.recorded() or self.holds() or self.cdi_uids() or self.leftovers())


def here() -> bool:
    """The caller waits: what `cancelled` says in most tests."""
    return False


def prepare(claims: Claims, ref: ClaimRef) -> tuple[PreparedDevice, ...]:
    return claims.prepare(ref, cancelled=here)


def refusal(call: Callable[[], object]) -> Reason:
    """The reason that the call is refused with."""
    try:
        answer = call()
    except Refused as refused:
        return refused.reason
    raise AssertionError(f"not refused, but answered {answer!r}")
