"""The built-in kinds, and what is particular about each."""

from __future__ import annotations

from cli.sandbox.apiserver.kinds import Kind, Renames
from cli.sandbox.apiserver.shapes import ATOMIC, CONDITIONS, DEDUCED, SET, fields, keyed, kind_shape


def _paths(*dotted: str) -> dict[str, tuple[str, ...]]:
    return {d: tuple(d.split(".")) for d in dotted}


_PORTS = keyed("containerPort", "protocol", defaults={"protocol": "TCP"})
_CONTAINERS = keyed(
    "name",
    each=fields(
        env=keyed("name"),
        ports=_PORTS,
        volumeMounts=keyed("mountPath"),
        volumeDevices=keyed("devicePath"),
        resources=fields(claims=keyed("name")),
    ),
)
_POD_SPEC = fields(
    containers=_CONTAINERS,
    initContainers=_CONTAINERS,
    volumes=keyed("name"),
    resourceClaims=keyed("name"),
    imagePullSecrets=keyed("name"),
    hostAliases=keyed("ip"),
    nodeSelector=ATOMIC,
)
_WORKLOAD = kind_shape(
    spec=fields(selector=ATOMIC, template=fields(spec=_POD_SPEC)), status=fields(conditions=CONDITIONS)
)
_CLAIM_DEVICES = keyed(
    "driver",
    "device",
    "pool",
    "shareID",
    each=fields(conditions=CONDITIONS, data=ATOMIC),
)
# The two event APIs show the same objects: v1's names are the stored ones (pkg/apis/events/v1/conversion.go).
_EVENT_RENAMES: Renames = (
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
)

BUILTIN: tuple[Kind, ...] = (
    Kind(
        "",
        "v1",
        "Node",
        "nodes",
        namespaced=False,
        short_names=("no",),
        status=True,
        keeps_status_on_create=True,
        selectable=_paths("spec.unschedulable"),
        shape=kind_shape(spec=fields(podCIDRs=SET), status=fields(conditions=CONDITIONS, addresses=keyed("type"))),
    ),
    Kind(
        "",
        "v1",
        "Pod",
        "pods",
        short_names=("po",),
        status=True,
        generation=True,
        returns_deleted=True,
        selectable=_paths(
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ),
        shape=kind_shape(
            spec=_POD_SPEC,
            status=fields(
                conditions=CONDITIONS, resourceClaimStatuses=keyed("name"), podIPs=keyed("ip"), hostIPs=DEDUCED
            ),
        ),
    ),
    Kind(
        "",
        "v1",
        "Namespace",
        "namespaces",
        namespaced=False,
        short_names=("ns",),
        status=True,
        returns_deleted=True,
        selectable=_paths("status.phase"),
        shape=kind_shape(status=fields(conditions=CONDITIONS)),
    ),
    Kind(
        "",
        "v1",
        "Event",
        "events",
        short_names=("ev",),
        create_on_update=True,
        selectable=_paths(
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "type",
        ),
        shape=kind_shape(),
    ),
    Kind(
        "",
        "v1",
        "ServiceAccount",
        "serviceaccounts",
        short_names=("sa",),
        returns_deleted=True,
        well_known_only=True,
        shape=kind_shape(secrets=keyed("name")),
    ),
    Kind(
        "",
        "v1",
        "ConfigMap",
        "configmaps",
        short_names=("cm",),
        well_known_only=True,
        shape=kind_shape(),
    ),
    Kind("", "v1", "Secret", "secrets", selectable=_paths("type"), shape=kind_shape()),
    Kind(
        "coordination.k8s.io",
        "v1",
        "Lease",
        "leases",
        create_on_update=True,
        unconditional_update=False,
        well_known_only=True,
        shape=kind_shape(),
    ),
    Kind(
        "events.k8s.io",
        "v1",
        "Event",
        "events",
        short_names=("ev",),
        create_on_update=True,
        stored_as=("", "events"),
        renames=_EVENT_RENAMES,
        shape=kind_shape(),
        selectable={
            "reason": ("reason",),
            "type": ("type",),
            "reportingController": ("reportingComponent",),
            **{
                f"regarding.{name}": ("involvedObject", name)
                for name in ("kind", "namespace", "name", "uid", "apiVersion", "fieldPath")
            },
        },
    ),
    Kind(
        "resource.k8s.io",
        "v1",
        "DeviceClass",
        "deviceclasses",
        namespaced=False,
        generation=True,
        returns_deleted=True,
        well_known_only=True,
        shape=kind_shape(),
    ),
    Kind(
        "resource.k8s.io",
        "v1",
        "ResourceClaim",
        "resourceclaims",
        status=True,
        returns_deleted=True,
        well_known_only=True,
        shape=kind_shape(
            status=fields(reservedFor=keyed("uid"), devices=_CLAIM_DEVICES, allocation=fields(nodeSelector=ATOMIC))
        ),
    ),
    Kind(
        "resource.k8s.io",
        "v1",
        "ResourceClaimTemplate",
        "resourceclaimtemplates",
        returns_deleted=True,
        well_known_only=True,
        shape=kind_shape(),
    ),
    Kind(
        "resource.k8s.io",
        "v1",
        "ResourceSlice",
        "resourceslices",
        namespaced=False,
        generation=True,
        returns_deleted=True,
        selectable=_paths("spec.nodeName", "spec.driver", "spec.pool.name"),
        selector_complaint="field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {label}",
        shape=kind_shape(spec=fields(nodeSelector=ATOMIC)),
    ),
    Kind(
        "apps",
        "v1",
        "Deployment",
        "deployments",
        short_names=("deploy",),
        status=True,
        generation=True,
        well_known_only=True,
        shape=_WORKLOAD,
    ),
    Kind(
        "apps",
        "v1",
        "DaemonSet",
        "daemonsets",
        short_names=("ds",),
        status=True,
        generation=True,
        well_known_only=True,
        shape=_WORKLOAD,
    ),
    Kind(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        namespaced=False,
        short_names=("crd", "crds"),
        status=True,
        generation=True,
        unconditional_update=False,
        well_known_only=True,
        shape=kind_shape(spec=fields(versions=DEDUCED), status=fields(conditions=CONDITIONS)),
    ),
)
