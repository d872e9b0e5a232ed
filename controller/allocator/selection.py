"""Whether a device is one that a wish allows, whoever has it: selectors, nodes and taints."""

from collections.abc import Mapping

from api.refusals import Refused
from controller.allocator import cel
from controller.allocator.nodes import reaches
from controller.allocator.pools import Device
from controller.allocator.question import DeviceID, Object
from controller.allocator.refusals import BadSelector
from controller.allocator.wishes import Wish, class_selectors, tolerates

_FORBIDDING = ("NoSchedule", "NoExecute")


class Selection:
    """Answers for one node and one set of classes, each question once."""

    def __init__(self, node: Object, classes: Mapping[str, Object], compiler: cel.Compiler) -> None:
        self._node = node
        self._classes = classes
        self._compiler = compiler
        self._known: dict[tuple[str, str, DeviceID], bool] = {}
        self._inputs: dict[DeviceID, cel.Input] = {}

    def selectable(self, wish: Wish, device: Device) -> bool:
        """Whether the class, the wish and the device's own choice of nodes agree. Refused where a selector fails."""
        key = (wish.claim, wish.name, device.id)
        known = self._known.get(key)
        if known is None:
            known = self.rejecting_selector(wish, device) is None and self.on_node(device)
            self._known[key] = known
        return known

    def rejecting_selector(self, wish: Wish, device: Device) -> tuple[str, str] | None:
        """The first selector that is false: whose it is, and the expression."""
        name = wish.class_name
        for i, expression in enumerate(class_selectors(self._classes[name])):
            if not self._matches(f"class {name}: selector #{i}", expression, device):
                return f"class {name}", expression
        for i, expression in enumerate(wish.selectors):
            if not self._matches(f"{wish.where}: selector #{i}", expression, device):
                return "the request", expression
        return None

    def on_node(self, device: Device) -> bool:
        """Whether the device can be used on the node, where devices say so each for itself."""
        return not device.per_device or reaches(self._node, device.raw, f"device {device.id}")

    def _matches(self, where: str, expression: str, device: Device) -> bool:
        given = self._inputs.get(device.id)
        try:
            if given is None:
                given = self._inputs[device.id] = cel.Input.of(device.id.driver, device.raw)
            return self._compiler.compiled(expression).matches(given)
        except cel.CelError as error:
            raise Refused(BadSelector(where, str(error), str(device.id) if error.at_run_time else "")) from error


def untolerated(wish: Wish, device: Device) -> Object | None:
    """The first taint that keeps the device from this wish."""
    for taint in device.raw.get("taints") or ():
        if taint.get("effect") in _FORBIDDING and not tolerates(wish.tolerations, taint):
            return dict(taint)
    return None
