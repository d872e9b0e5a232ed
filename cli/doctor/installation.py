"""Whether the cluster is fit for Lanewise, and Lanewise is installed in it as it should be."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from api.inventory import decode
from api.refusals import Refused
from api.versions import normalise
from cli.doctor.cluster import Cluster, Unknown, is_fresh
from cli.doctor.findings import Finding, failure, ok, warning
from cli.doctor.rights import CONTROLLER_ACCOUNT, FORBIDDEN, NEEDED, PLUGIN_ACCOUNT
from controller.conflicts import rival_of

OLDEST = (1, 34)
"""resource.k8s.io/v1 is served from here on."""
SUPPORTED = (1, 36)
"""Device taints and extended resources are on by default from here on."""
LEADER_SECONDS = 30.0
"""Twice as long as a controller's Lease lasts, so that a change of leaders is no alarm."""
_INSTALL = "kubectl apply -k deploy"
_ACCOUNT = re.compile(r"system:serviceaccount:([-a-z0-9]+):([-a-z0-9.]+)")
_GATES: Mapping[str, str] = {
    "DRADeviceTaints": "devices of a dead plugin or an ailing GPU are not tainted, and pods are sent to them",
    "DRAExtendedResource": "nvidia.com/gpu in a pod's limits gives no GPU of ours",
    "DRAAdminAccess": "monitoring pods cannot look at GPUs in use",
    "DRAPrioritizedList": "claims cannot name alternatives (firstAvailable)",
    "ResourceHealthStatus": "a pod's status does not say that its GPU is ill",
}
"""What is missing without each."""
Object = Mapping[str, Any]


def judge(seen: Cluster, now: datetime) -> Iterator[Finding]:
    """What is to be said of the cluster; of the node where one is named."""
    yield from _server(seen)
    yield from _gates(seen)
    yield from _objects(seen)
    yield from _policies(seen)
    yield from _rights(seen)
    yield from _controller(seen, now)
    if seen.node is not None:
        yield from _node(seen, seen.node, now)


def _server(seen: Cluster) -> Iterator[Finding]:
    plain = normalise(seen.version)
    number = tuple(int(part) for part in plain.split(".")[:2]) if plain else None
    if number is None:
        yield warning("api server", f"its version {seen.version!r} is not understood", "Lanewise needs Kubernetes 1.36")
    elif number < OLDEST:
        yield failure("api server", f"Kubernetes {seen.version} is too old", "use Kubernetes 1.36 or newer")
    elif number < SUPPORTED:
        yield warning("api server", f"Kubernetes {seen.version} has no device taints by default", "use 1.36 or newer")
    else:
        yield ok("api server", f"Kubernetes {seen.version}")
    match seen.serves_dra:
        case Unknown(why, remedy):
            yield warning("api server", why, remedy)
        case False:
            remedy = "turn it on: --runtime-config=resource.k8s.io/v1=true and the gate DynamicResourceAllocation"
            yield failure("api server", "resource.k8s.io/v1 is not served", remedy)
        case _:
            yield ok("api server", "resource.k8s.io/v1 is served")


def _gates(seen: Cluster) -> Iterator[Finding]:
    if isinstance(seen.gates, Unknown):
        yield warning("feature gates", f"not known: {seen.gates.why}", seen.gates.remedy)
        return
    off = [gate for gate in _GATES if seen.gates.get(gate) is False]
    for gate in off:
        remedy = f"--feature-gates={gate}=true on API server, controller manager, scheduler and kubelets"
        yield warning("feature gates", f"{gate} is off: {_GATES[gate]}", remedy)
    on = [gate for gate in _GATES if seen.gates.get(gate)]
    if on and not off:
        yield ok("feature gates", f"on: {', '.join(on)}")
    elif not on and not off:
        yield warning("feature gates", "the API server's metrics name none of ours", "see its --feature-gates")


def _objects(seen: Cluster) -> Iterator[Finding]:
    match seen.crd:
        case Unknown(why, remedy):
            yield warning("crd", why, remedy)
        case None:
            yield failure("crd", "NodeInventory is not defined: plugins cannot report what they find", _INSTALL)
        case found:
            established = _condition(found, "Established")
            if established.get("status") == "True":
                yield ok("crd", "NodeInventory is defined")
            else:
                what = f"NodeInventory is not served: {established.get('message') or 'not established'}"
                yield failure("crd", what, "kubectl describe crd nodeinventories.lanewise.dev")
    match seen.gpu_class:
        case Unknown(why, remedy):
            yield warning("class", why, remedy)
        case None:
            yield failure(
                "class", f"there is no DeviceClass {seen.driver}: claims that name it wait for ever", _INSTALL
            )
        case found:
            selectors = (found.get("spec") or {}).get("selectors") or ()
            if any(seen.driver in ((each.get("cel") or {}).get("expression") or "") for each in selectors):
                yield ok("class", f"DeviceClass {seen.driver} selects devices of the driver")
            else:
                what = f"DeviceClass {seen.driver} has no selector that names the driver: it gives any driver's devices"
                yield failure("class", what, _INSTALL)


def _policies(seen: Cluster) -> Iterator[Finding]:
    """Cases K1 and K2: a policy that names another account, or not all API versions, lets through what it should not."""
    sound = 0
    for name, policy in seen.policies.items():
        binding = seen.bindings.get(name)
        if isinstance(policy, Unknown):
            yield warning("policies", policy.why, policy.remedy)
            continue
        if isinstance(binding, Unknown):
            yield warning("policies", binding.why, binding.remedy)
            continue
        if policy is None or binding is None:
            what = "ValidatingAdmissionPolicy" if policy is None else "ValidatingAdmissionPolicyBinding"
            yield failure("policies", f"there is no {what} {name}: a node could write what is not its own", _INSTALL)
            continue
        faults = tuple(_faults(policy, binding, seen.namespace))
        sound += not faults
        for fault in faults:
            yield failure("policies", f"{name}: {fault}", _INSTALL)
    if sound == len(seen.policies):
        yield ok("policies", f"all {sound} are there, bound, and speak of our accounts")


def _faults(policy: Object, binding: Object, namespace: str) -> Iterator[str]:
    spec = policy.get("spec") or {}
    accounts = set(_ACCOUNT.findall(repr(spec)))
    for where, account in sorted(accounts):
        if where != namespace or account not in (PLUGIN_ACCOUNT, CONTROLLER_ACCOUNT):
            yield f"it speaks of the account {account} in {where}, and Lanewise is in {namespace}"
    if not accounts:
        yield "it speaks of no account"
    equivalent = (spec.get("matchConstraints") or {}).get("matchPolicy", "Equivalent") == "Equivalent"
    for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
        if "*" not in (rule.get("apiVersions") or ()) and not equivalent:
            yield f"it covers only the versions {', '.join(rule.get('apiVersions') or ())}"
    if "Deny" not in ((binding.get("spec") or {}).get("validationActions") or ()):
        yield "its binding does not deny"


def _rights(seen: Cluster) -> Iterator[Finding]:
    if isinstance(seen.granted, Unknown):
        yield warning("rights", f"not known: {seen.granted.why}", seen.granted.remedy)
        return
    for account in (PLUGIN_ACCOUNT, CONTROLLER_ACCOUNT):
        needed = [right for right in NEEDED if right.account == account]
        missing = [right.text for right in needed if not seen.granted.get(right)]
        if missing:
            yield failure("rights", f"{account} may not {', '.join(missing)}", _INSTALL)
        else:
            yield ok("rights", f"{account} has all it needs")
    too_many = [right for right in FORBIDDEN if seen.granted.get(right)]
    if too_many:
        told = ", ".join(right.text for right in too_many)
        remedy = (
            "see which role grants it: kubectl get rolebindings,clusterrolebindings -A -o wide | grep lanewise-node"
        )
        yield warning("rights", f"{PLUGIN_ACCOUNT} may {told}: any node could invent devices for any other", remedy)


def _controller(seen: Cluster, now: datetime) -> Iterator[Finding]:
    see = f"kubectl -n {seen.namespace} get deployment lanewise-controller, and its log"
    match seen.leader:
        case Unknown(why, remedy):
            yield warning("controller", f"not known: {why}", remedy)
        case None:
            what = "no controller has ever led here, or it runs with --leader-election=false"
            yield warning("controller", what, see)
        case lease if lease.holder and is_fresh(lease, now, LEADER_SECONDS):
            yield ok("controller", f"{lease.holder} leads")
        case lease:
            since = f" since {lease.renewed.isoformat(timespec='seconds')}" if lease.renewed else ""
            yield failure("controller", f"no controller leads{since}: nothing is published or tainted anew", see)


def _node(seen: Cluster, node: str, now: datetime) -> Iterator[Finding]:
    match seen.node_object:
        case Unknown(why, remedy):
            yield warning("node", why, remedy)
        case None:
            yield failure("node", f"there is no Node {node}", "name it as kubectl get nodes does: --node-name")
        case found:
            ready = _condition(found, "Ready")
            if ready.get("status") == "True":
                yield ok("node", f"{node} is ready")
            else:
                yield failure(
                    "node", f"{node} is not ready: {ready.get('message') or 'it does not say'}", "see its kubelet"
                )
    match seen.inventory:
        case Unknown(why, remedy):
            yield warning("inventory", why, remedy)
        case None:
            remedy = "does the plugin run here? it needs the label lanewise.dev/gpu=true or Node Feature Discovery's"
            yield failure("inventory", f"no plugin has reported {node}", remedy)
        case found:
            yield from _inventory(seen, found, now)


def _inventory(seen: Cluster, found: Object, now: datetime) -> Iterator[Finding]:
    remedies = {"Published": "see docs/operations.md for the reason", "Registered": "see the plugin's log on this node"}
    for kind, remedy in remedies.items():
        condition = _condition(found, kind)
        told = f"{kind} is {condition.get('status', 'not said')}"
        if condition.get("status") == "True":
            yield ok("inventory", f"{told}: {condition.get('message', '')}")
        else:
            said = f" ({condition['reason']}): {condition.get('message', '')}" if condition.get("reason") else ""
            yield failure("inventory", f"{told}{said}", remedy if condition else "does the controller run?")
    try:
        inventory = decode(found)
    except Refused as refused:
        yield failure("inventory", refused.reason.what, refused.reason.remedy)
        return
    for gpu in inventory.machine.gpus:
        for ailment in gpu.ailments:
            yield warning("health", f"{gpu.place.address}: {ailment.message}, since {ailment.since}", ailment.remedy)
    if not isinstance(seen.plugin_leases, Unknown):
        leases = {lease.name: lease for lease in seen.plugin_leases}
        for instance in inventory.instances:
            lease = leases.get(instance.lease)
            if lease is None or not is_fresh(lease, now):
                what = f"plugin instance {instance.id} is silent"
                yield failure("plugin", what, "see its pod; the clocks of this node and the plugin's must agree")
            else:
                yield ok("plugin", f"instance {instance.id} renews its Lease")
    yield from _rivals(seen, inventory.machine.gpus)


def _rivals(seen: Cluster, gpus: Any) -> Iterator[Finding]:
    if isinstance(seen.foreign, Unknown):
        yield warning("other drivers", f"not known: {seen.foreign.why}", seen.foreign.remedy)
        return
    node = seen.node_object if not isinstance(seen.node_object, Unknown) else None
    allocatable = ((node or {}).get("status") or {}).get("allocatable") or {}
    offered = {name: str(amount) for name, amount in allocatable.items() if name.startswith("nvidia.com/")}
    rival = rival_of(gpus, offered, seen.foreign, node=seen.node or "")
    if rival is None:
        yield ok("other drivers", "nobody else serves this node's GPUs")
    else:
        remedy = "the same GPU would be handed out twice; --allow-shared-ownership=true only while moving"
        yield failure("other drivers", rival.message, remedy)


def _condition(obj: Object, kind: str) -> Object:
    status = obj.get("status")
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    found = (each for each in conditions or () if isinstance(each, Mapping) and each.get("type") == kind)
    return next(found, {})
