"""The controller's settings: each with its flag, its environment variable, its default, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from api.flags import DRIVER_NAME, HTTP_PORT, KUBECONFIG, LOG_FORMAT, LOG_LEVEL, Flag, Values
from api.health import KINDS
from api.inventory import LEASE_SECONDS
from api.names import GPU_DRIVER, NAMESPACE
from controller.taints import EFFECTS

_DESCRIPTION = "Publishes the GPUs that the nodes' plugins report as ResourceSlices."


@dataclass(frozen=True, slots=True)
class Settings:
    """What one run of the controller was told."""

    driver: str = GPU_DRIVER
    """The DRA driver's name, the same as the plugins'. A second name lets two installations live in one cluster."""
    namespace: str = NAMESPACE
    """Where the plugins keep their Leases, and the controller its own."""
    kubeconfig: Path | None = None
    """None: as `api.kube.config` finds it; in a pod, the service account."""
    stale_seconds: float = LEASE_SECONDS
    """A Lease not renewed for this long is silence. Four renewals, and what the kubelet itself is granted before its node is
    called not ready. Shorter taints devices because of a busy API server; longer lets pods land where they must wait."""
    allow_shared_ownership: bool = False
    """Publish nodes that NVIDIA's device plugin or another DRA driver serves too. Off, because the same GPU is then handed
    out twice; on only while moving from one to the other, with pods kept apart by other means."""
    health_effects: Mapping[str, str] = field(default_factory=dict)
    """The effect of the taint for each kind of ailment (docs/health.md). Without a word for it a kind that makes a GPU unfit is
    `NoSchedule`, and one that is only to be known is `None`. `NoExecute` ends the pods that use the GPU: some would rather
    finish."""
    leader_election: bool = True
    """Off only where it is certain that one controller runs: two without it undo each other's writes."""
    identity: str = ""
    """Of this candidate for leadership; the pod's name. Something of chance is added."""
    workers: int = 4
    """Nodes worked on at the same time. A pass is mostly waiting for the API server."""
    http_port: int = 0
    """Port of /healthz, /readyz and /metrics on all addresses; 0 turns them off."""
    log_format: str = "auto"
    """`json` for machines, `console` for people, `auto` for console where stderr is a terminal."""
    log_level: str = "info"


_FLAGS: tuple[Flag, ...] = (
    DRIVER_NAME,
    ("--namespace", "NAMESPACE", NAMESPACE, "namespace of the plugins' Leases, and of the controller's"),
    KUBECONFIG,
    ("--stale-seconds", "STALE_SECONDS", str(LEASE_SECONDS), "a plugin silent for longer has its devices tainted"),
    (
        "--allow-shared-ownership",
        "ALLOW_SHARED_OWNERSHIP",
        "false",
        "true: publish nodes that another driver or device plugin serves too",
    ),
    ("--health-effects", "HEALTH_EFFECTS", "", "kind=effect,...: taints of ailing GPUs, such as lost=NoExecute"),
    ("--leader-election", "LEADER_ELECTION", "true", "false: write without asking who leads"),
    ("--identity", "POD_NAME", "lanewise-controller", "name of this candidate for leadership"),
    ("--workers", "WORKERS", "4", "nodes worked on at the same time"),
    HTTP_PORT,
    LOG_FORMAT,
    LOG_LEVEL,
)


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Settings from the command line and the environment; Refused with everything that is wrong with them."""
    values = Values("lanewise-controller", _DESCRIPTION, _FLAGS, arguments, environment)
    settings = Settings(
        driver=values.driver(),
        namespace=values.namespace(),
        kubeconfig=values.optional_file("--kubeconfig"),
        stale_seconds=values.seconds("--stale-seconds", 3600),
        allow_shared_ownership=values.truth("--allow-shared-ownership"),
        health_effects=_effects(values),
        leader_election=values.truth("--leader-election"),
        identity=values.text("--identity"),
        workers=values.whole("--workers", 1, 64),
        http_port=values.http_port(),
        log_format=values.log_format(),
        log_level=values.log_level(),
    )
    values.check()
    return settings


def _effects(values: Values) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for part in values.text("--health-effects").replace(",", " ").split():
        kind, _, effect = part.partition("=")
        if kind not in KINDS:
            values.refuse("--health-effects", f"{kind!r} is no kind of ailment", f"use one of {', '.join(KINDS)}")
        elif effect not in EFFECTS:
            values.refuse(
                "--health-effects", f"{part!r} names none of {', '.join(EFFECTS)}", f"write it like {kind}=NoSchedule"
            )
        elif kind in found:
            values.refuse("--health-effects", f"{kind} is there twice", "name it once")
        found[kind] = effect
    return found
