"""Devices, cut into ResourceSlices within the API's limits."""

from collections.abc import Callable, Sequence
from typing import Any

from api.names import pool_name
from controller.device import Device, Taint
from controller.validate import DEVICES_MAX


def slices_of(
    devices: Sequence[Device],
    *,
    node: str,
    driver: str,
    taints: Callable[[Device], Sequence[Taint]] = lambda _: (),
) -> tuple[dict[str, Any], ...]:
    """The `spec` of each slice of a node's pool, in order, each device with its `taints`; none for no devices.

    Generations are not in them: `controller.plan` knows what is there already. The scheduler tries devices in this order.
    """
    parts = [devices[start : start + DEVICES_MAX] for start in range(0, len(devices), DEVICES_MAX)]
    return tuple(
        {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": pool_name(node, driver), "resourceSliceCount": len(parts)},
            "devices": [device.encode(taints(device)) for device in part],
        }
        for part in parts
    )
