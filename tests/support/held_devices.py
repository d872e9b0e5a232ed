"""Pods and claims that have devices of ours, as the API server stores them."""

from typing import Any

DRIVER = "gpu.lanewise.dev"


def a_result(device: str, request: str = "gpu", *, node: str = "node-a", **more: Any) -> dict[str, Any]:
    """One device that the scheduler gave to a claim."""
    return {"request": request, "driver": DRIVER, "pool": f"{node}/{DRIVER}", "device": device, **more}


def a_held_claim(
    name: str,
    *results: dict[str, Any],
    pods: tuple[str, ...] = (),
    namespace: str = "team-a",
    requests: tuple[str, ...] = ("gpu",),
    **meta: Any,
) -> dict[str, Any]:
    """A claim with these results, reserved for pods of the UIDs `uid-NAME`; without results it waits."""
    status: dict[str, Any] = {}
    if results:
        status["allocation"] = {"devices": {"results": list(results)}}
        status["reservedFor"] = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", **meta},
        "spec": {
            "devices": {"requests": [{"name": each, "exactly": {"deviceClassName": DRIVER}} for each in requests]}
        },
        "status": status,
    }


def a_pod(
    name: str,
    claims: dict[str, str] | None = None,
    *,
    containers: dict[str, list[dict[str, str]]] | None = None,
    namespace: str = "team-a",
    phase: str = "Running",
    spec: dict[str, Any] | None = None,
    **status: Any,
) -> dict[str, Any]:
    """A pod; `claims` by the pod's own name for each, `containers` with their `resources.claims`."""
    names = claims or {}
    uses = containers if containers is not None else {"main": [{"name": each} for each in names]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
        "spec": {
            "resourceClaims": [{"name": own, "resourceClaimName": claim} for own, claim in names.items()],
            "containers": [{"name": each, "resources": {"claims": used}} for each, used in uses.items()],
            **(spec or {}),
        },
        "status": {"phase": phase, **status},
    }


def a_gpu_class(name: str = DRIVER, driver: str = DRIVER, extended: str | None = None) -> dict[str, Any]:
    """A DeviceClass whose selector names the driver."""
    expression = f"device.driver == '{driver}'"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {
            "selectors": [{"cel": {"expression": expression}}],
            **({"extendedResourceName": extended} if extended else {}),
        },
    }
