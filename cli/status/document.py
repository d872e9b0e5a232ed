"""The report for programs: one JSON document whose fields keep their names and meaning (docs/operations.md).

Fields may be added; what is not known is left out, and lists are there even when they are empty.
"""

from collections.abc import Iterable
from typing import Any

from cli.status.facts import Taint
from cli.status.report import Device, Hold, NodeStatus, PluginInstance, Report, State, Waiting

API_VERSION = "cli.lanewise.dev/v1alpha1"
KIND = "Status"


def document(report: Report) -> dict[str, Any]:
    """All that is known."""
    scope = {"node": report.scope.node, "namespace": report.scope.namespace, "pod": report.scope.pod}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "driver": report.driver,
        "scope": _known(**scope),
        "nodes": [_node(node, all_known=report.knows_all_pods) for node in report.nodes],
        "waiting": [_waiting(each) for each in report.waiting],
    }


def _known(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None and value != ""}


def _node(node: NodeStatus, *, all_known: bool) -> dict[str, Any]:
    summary = {
        "gpus": len(node.devices),
        "published": sum(device.published for device in node.devices),
        "inUse": node.count(State.IN_USE),
        "free": node.count(State.FREE),
        "tainted": node.tainted,
        "leftOut": len(node.left_out),
    }
    return {
        "name": node.name,
        "exists": node.exists,
        **_known(
            ready=node.ready,
            driverVersion=node.driver,
            cudaVersion=node.cuda,
            problem=node.problem,
            # Of a namespace alone nobody can tell.
            summary=summary if all_known else None,
        ),
        "cordoned": node.cordoned,
        "simulated": node.simulated,
        "conditions": [
            _known(
                type=condition.type,
                status=condition.status,
                reason=condition.reason,
                message=condition.message,
                lastTransitionTime=condition.since,
            )
            for condition in node.conditions
        ],
        "instances": [_instance(instance) for instance in node.instances],
        "devices": [_device(device, all_known=all_known) for device in node.devices],
        "leftOut": [{"what": item.what, "why": item.why} for item in node.left_out],
    }


def _instance(instance: PluginInstance) -> dict[str, Any]:
    return {
        "id": instance.id,
        "registered": instance.registered,
        "leaseFresh": instance.fresh,
        **_known(lease=instance.lease, renewedAt=instance.renewed_at, version=instance.version),
    }


def _device(device: Device, *, all_known: bool) -> dict[str, Any]:
    return {
        "name": device.name,
        "pool": device.pool,
        **({"state": _state(device.state)} if all_known or device.holds else {}),
        "published": device.published,
        **_known(productName=device.product, pciAddress=device.address, uuid=device.uuid, memory=device.memory),
        "taints": [_taint(taint) for taint in device.taints],
        "ailments": list(device.ailments),
        "holders": _holds(device.holds),
        "adminAccess": _holds(device.admin),
    }


def _state(state: State) -> str:
    """Free, InUse, Tainted or Unpublished."""
    return state.value.title().replace(" ", "")


def _taint(taint: Taint) -> dict[str, Any]:
    return _known(key=taint.key, value=taint.value, effect=taint.effect, timeAdded=taint.since, rule=taint.rule)


def _holds(holds: Iterable[Hold]) -> list[dict[str, Any]]:
    return [
        {
            "namespace": hold.namespace,
            "claim": hold.claim,
            "claimUID": hold.uid,
            "request": hold.request,
            "deleting": hold.deleting,
            **({"otherHolders": hold.others} if hold.others else {}),
            "pods": [
                {"name": pod.name, "uid": pod.uid, "state": pod.state, "containers": list(pod.containers)}
                for pod in hold.pods
            ],
        }
        for hold in holds
    ]


def _waiting(waiting: Waiting) -> dict[str, Any]:
    return {
        "namespace": waiting.namespace,
        **_known(claim=waiting.claim),
        "asks": list(waiting.asks),
        "pods": [_known(name=pod.name, why=pod.why) for pod in waiting.pods],
    }
