"""Reading a ResourceClaim: the few fields a driver needs, and nothing of other drivers' business."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.names import ClaimRef
from api.refusals import BadInput, Refused


@dataclass(frozen=True, slots=True)
class Result:
    """One device that the scheduler gave to the claim (`status.allocation.devices.results[]`)."""

    request: str
    """As allocated: `main`, or `main/sub` for a chosen alternative of `firstAvailable`."""
    driver: str
    pool: str
    device: str
    admin_access: bool = False
    share_id: str | None = None
    """Set for a device that several claims share: this claim's share of it."""

    @property
    def base_request(self) -> str:
        """The main request's name: the kubelet compares only that (pkg/kubelet/cm/dra)."""
        return self.request.split("/", 1)[0]


@dataclass(frozen=True, slots=True)
class Config:
    """One opaque configuration for one driver, in order of precedence: later wins."""

    requests: tuple[str, ...]
    """Empty means all of the claim's requests."""
    driver: str
    parameters: Any
    from_class: bool

    def covers(self, result: Result) -> bool:
        """Whether it applies: a config for request `gpu` covers `gpu/sub` too (Case A3)."""
        return not self.requests or result.request in self.requests or result.base_request in self.requests


@dataclass(frozen=True, slots=True)
class PodRef:
    """A pod that may use the claim (`status.reservedFor[]`); in the claim's namespace."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A ResourceClaim as the API server has it now."""

    ref: ClaimRef
    allocated: bool
    results: tuple[Result, ...] = ()
    """Of all drivers; see `results_of`."""
    configs: tuple[Config, ...] = ()
    pods: tuple[PodRef, ...] = ()

    def results_of(self, driver: str) -> tuple[Result, ...]:
        """The devices of one driver: other drivers' results are none of our business (dra-driver-nvidia-gpu #1327)."""
        return tuple(result for result in self.results if result.driver == driver)


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """What the kubelet is told of one prepared device."""

    requests: tuple[str, ...]
    """Base request names."""
    pool: str
    device: str
    cdi_ids: tuple[str, ...]
    """Fully qualified, `gpu.lanewise.dev/claim=<name>`."""
    share_id: str | None = None


def read_claim(obj: Mapping[str, Any]) -> Claim:
    """A ResourceClaim (resource.k8s.io/v1, parsed JSON). The API server has validated it; Refused for what is none, since
    something else may answer at its address."""
    try:
        return _claim(obj)
    except (KeyError, TypeError, AttributeError) as error:
        problem = f"lacks {error}" if isinstance(error, KeyError) else f"has a field of the wrong type: {error}"
        remedy = "look whether something else than a Kubernetes API server answers at its address"
        what = f"is no ResourceClaim as Kubernetes has them: it {problem}"
        raise Refused(BadInput("the API server's answer", what, remedy)) from error


def _claim(obj: Mapping[str, Any]) -> Claim:
    meta = obj["metadata"]
    allocation = (obj.get("status") or {}).get("allocation")
    devices = (allocation or {}).get("devices") or {}
    return Claim(
        ref=ClaimRef(_text(meta["namespace"]), _text(meta["name"]), _text(meta["uid"])),
        allocated=allocation is not None,
        results=tuple(
            Result(
                request=_text(result["request"]),
                driver=_text(result["driver"]),
                pool=_text(result["pool"]),
                device=_text(result["device"]),
                admin_access=bool(result.get("adminAccess")),
                share_id=None if result.get("shareID") is None else _text(result["shareID"]),
            )
            for result in devices.get("results") or ()
        ),
        configs=tuple(
            Config(
                requests=tuple(_text(request) for request in config.get("requests") or ()),
                driver=_text(config["opaque"]["driver"]),
                parameters=config["opaque"].get("parameters"),
                from_class=config.get("source") == "FromClass",
            )
            for config in devices.get("config") or ()
            if "opaque" in config
        ),
        pods=tuple(
            PodRef(_text(user["name"]), _text(user["uid"]))
            for user in (obj.get("status") or {}).get("reservedFor") or ()
            if (user.get("apiGroup") or "", user["resource"]) == ("", "pods")
        ),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
