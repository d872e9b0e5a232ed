"""Which pod and container has which device.

The claim's allocation says what is taken, `reservedFor` which pods may use it, and each pod's containers which of them do,
narrowed to a request where they name one. The kubelet goes by the same (pkg/kubelet/cm/dra).
"""

from collections.abc import Iterable, Mapping

from api.claims import Result
from cli.status.facts import Claim, Pod
from cli.status.report import Hold, HoldingPod

DeviceId = tuple[str, str]
"""Pool and name."""
PodId = tuple[str, str]
"""Namespace and name."""


def holds_of(claims: Iterable[Claim], pods: Mapping[PodId, Pod]) -> dict[DeviceId, tuple[list[Hold], list[Hold]]]:
    """Who holds each device, and who only looks at it with adminAccess."""
    found: dict[DeviceId, tuple[list[Hold], list[Hold]]] = {}
    for claim in sorted(claims, key=lambda claim: (claim.namespace, claim.name)):
        for result in claim.results:
            holders, watchers = found.setdefault((result.pool, result.device), ([], []))
            (watchers if result.admin_access else holders).append(_hold(claim, result, pods))
    return found


def _hold(claim: Claim, result: Result, pods: Mapping[PodId, Pod]) -> Hold:
    users = (_user(claim, result, name, uid, pods.get((claim.namespace, name))) for name, uid in _reserved(claim))
    return Hold(
        namespace=claim.namespace,
        claim=claim.name,
        uid=claim.uid,
        request=result.request,
        pods=tuple(users),
        others=claim.others,
        deleting=claim.deleting,
    )


def _reserved(claim: Claim) -> list[tuple[str, str]]:
    return sorted((pod.name, pod.uid) for pod in claim.pods)


def _user(claim: Claim, result: Result, name: str, uid: str, pod: Pod | None) -> HoldingPod:
    if pod is None or pod.uid != uid:  # another pod of the same name is not the one that has it
        return HoldingPod(claim.namespace, name, uid, None)
    containers = (
        use.container
        for use in pod.uses
        if use.claim == claim.name and use.request in (None, result.base_request, result.request)
    )
    return HoldingPod(pod.namespace, pod.name, pod.uid, pod.phase, tuple(dict.fromkeys(containers)), pod.deleting)
