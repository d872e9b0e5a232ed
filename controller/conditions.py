"""The status that the controller writes into a NodeInventory: its conditions and counts."""

from collections.abc import Mapping
from typing import Any

from api.inventory import CONDITION_PUBLISHED, KIND
from api.names import API_VERSION
from controller.decide import WHY_DEAD, Decision
from controller.liveness import Alive, Dead

MANAGER = "lanewise-controller"
"""Field manager of `status.conditions` and `status.published`."""
CONDITION_REGISTERED = "Registered"
MESSAGE_MAX = 1024
"""Characters of a condition's message; Kubernetes takes 32768, but nobody reads them."""

Object = dict[str, Any]


def status_of(
    obj: Mapping[str, Any], decision: Decision, *, slices: int, left_out: int, dropped: tuple[str, ...], now: str
) -> Object | None:
    """The object to apply to the status subresource under MANAGER, None when the stored one says it all already.

    While nothing is known yet (`Waiting`) the stored word stands. `now` is RFC 3339, for conditions whose status changes.
    """
    if decision.slices is None:
        return None
    # Whatever stands there is written over, also what no schema would have let in.
    status = obj.get("status")
    stored: Mapping[str, Any] = status if isinstance(status, Mapping) else {}
    reason, message = decision.reason, decision.message
    if dropped:
        reason = "FieldsDropped" if decision.published else reason
        message += f"; the API server dropped {', '.join(dropped)}: a feature gate is off there"
    wanted = [_condition(CONDITION_PUBLISHED, reason, message, status=decision.published)]
    match decision.health:
        case Alive():
            wanted.append(
                _condition(CONDITION_REGISTERED, "Registered", "the kubelet has the plugin registered", status=True)
            )
        case Dead(why):
            wanted.append(_condition(CONDITION_REGISTERED, why.capitalize(), WHY_DEAD[why], status=False))
        case _:
            pass
    known: dict[str, Object] = {
        condition["type"]: condition
        for condition in stored.get("conditions") or ()
        if isinstance(condition, dict) and isinstance(condition.get("type"), str)
    }
    wanted += [known[kind] for kind in (CONDITION_REGISTERED,) if kind in known and len(wanted) == 1]
    published = {"devices": decision.devices, "slices": slices, "leftOut": left_out, "ailing": decision.ailing}
    changed = stored.get("published") != published
    conditions = []
    for condition in wanted:
        old = known.get(condition["type"], {})
        changed = changed or any(old.get(key) != value for key, value in condition.items())
        same_status = old.get("status") == condition["status"]
        since = old.get("lastTransitionTime") if same_status else None
        conditions.append({**condition, "lastTransitionTime": since or now})
    if not changed:
        return None
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": obj["metadata"]["name"]},
        "status": {"conditions": conditions, "published": published},
    }


def _condition(kind: str, reason: str, message: str, *, status: bool) -> Object:
    short = message if len(message) <= MESSAGE_MAX else f"{message[: MESSAGE_MAX - 1]}…"
    return {"type": kind, "status": "True" if status else "False", "reason": reason, "message": short}
