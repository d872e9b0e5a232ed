"""What claims a pod's templates make, and when a claim is still in use.

Source: pkg/controller/resourceclaim/controller.go of Kubernetes 1.37.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

Object = Mapping[str, Any]

POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
FINALIZER = "resource.kubernetes.io/delete-protection"
NAME_BASE = 57
"""Room for a hyphen and the five characters of a generated name, in 63."""


def key_of(obj: Object) -> str:
    """Namespace/name."""
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def claim_for(pod: Object, pod_claim: str, template: Object) -> dict[str, Any]:
    """The claim to create for what the pod calls `pod_claim`."""
    spec, meta = template["spec"], pod["metadata"]
    given = spec.get("metadata") or {}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True}
    made: dict[str, Any] = {
        "generateName": name_base(meta["name"], pod_claim),
        "namespace": meta["namespace"],
        "annotations": {**(given.get("annotations") or {}), POD_CLAIM: pod_claim},
        "ownerReferences": [owner],
    }
    if given.get("labels"):
        made["labels"] = dict(given["labels"])
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": made,
        "spec": copy.deepcopy(dict(spec["spec"])),
    }


def name_base(pod: str, pod_claim: str) -> str:
    """What stands before the generated part; both names are cut in proportion where they are too long."""
    whole = f"{pod}-{pod_claim}-"
    if len(whole) <= NAME_BASE:
        return whole
    first = pod[: len(pod) * NAME_BASE // len(whole)]
    return f"{first}-{pod_claim[: len(pod_claim) * NAME_BASE // len(whole)]}"


def made_for(pod: Object, pod_claim: str, claims: Iterable[Object]) -> Object | None:
    """The claim that was made for the pod already, though its status may not say so."""
    for claim in claims:
        annotations = claim["metadata"].get("annotations") or {}
        if annotations.get(POD_CLAIM) == pod_claim and is_owned_by(claim, pod):
            return claim
    return None


def is_owned_by(claim: Object, pod: Object) -> bool:
    """Whether the pod is its controlling owner."""
    owner = owning_pod(claim)
    same_namespace = claim["metadata"]["namespace"] == pod["metadata"]["namespace"]
    return same_namespace and owner is not None and owner[1] == pod["metadata"]["uid"]


def owning_pod(claim: Object) -> tuple[str, str] | None:
    """Name and UID of the pod that it was made for."""
    for owner in claim["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and (owner["apiVersion"], owner["kind"]) == ("v1", "Pod"):
            return owner["name"], owner["uid"]
    return None


def claim_names(pod: Object) -> dict[str, str | None]:
    """The pod's own name of each of its claims → the ResourceClaim's, None where it is not needed. Those not made yet are
    left out. The claim for extended resources stands under ""."""
    status = pod.get("status") or {}
    made = {each["name"]: each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()}
    names: dict[str, str | None] = {}
    for entry in pod["spec"].get("resourceClaims") or ():
        if entry.get("resourceClaimName"):
            names[entry["name"]] = entry["resourceClaimName"]
        elif entry["name"] in made:
            names[entry["name"]] = made[entry["name"]]
    if extended := (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName"):
        names[""] = extended
    return names


def statuses(pod: Object, new: Mapping[str, str]) -> list[dict[str, str]]:
    """`status.resourceClaimStatuses` with the new names in it."""
    before = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    names = {each["name"]: each["resourceClaimName"] for each in before if each.get("resourceClaimName")} | dict(new)
    return [{"name": name, "resourceClaimName": names[name]} for name in sorted(names)]


def is_done(pod: Object) -> bool:
    """Whether it is certain that none of its containers run, or ever will."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return True
    return "deletionTimestamp" in pod["metadata"] and not pod["spec"].get("nodeName")


def is_reserved_for(claim: Object, pod: Object) -> bool:
    """Whether the pod may use it."""
    users = (claim.get("status") or {}).get("reservedFor") or ()
    return any(user["uid"] == pod["metadata"]["uid"] for user in users)


def reserved_for(claim: Object) -> list[Object]:
    """Its users."""
    return list((claim.get("status") or {}).get("reservedFor") or ())


def is_pod(user: Object) -> bool:
    """Whether a user is a pod; others are left alone."""
    return (user.get("apiGroup") or "", user["resource"]) == ("", "pods")
