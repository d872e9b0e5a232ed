"""Which taints a device has, by what ails it and by what administrators want done about that."""

from collections.abc import Iterable, Mapping, Sequence

from api.health import KINDS, Ailment
from api.names import API_GROUP
from controller.device import Device, Taint
from controller.validate import TAINTS_MAX

EFFECTS = ("None", "NoSchedule", "NoExecute")
"""`None` is told and keeps nobody away (resource.k8s.io/v1, DeviceTaintEffect)."""

Effects = Mapping[str, str]
"""By kind of ailment; a kind that is not in it has its own effect."""


def taint_key(kind: str) -> str:
    """The key of the taint for a kind of ailment."""
    return f"{API_GROUP}/{kind}"


def effect_of(ailment: Ailment, effects: Effects) -> str:
    """What the taint does. Of a kind that only a later plugin knows: NoSchedule."""
    kind = KINDS.get(ailment.kind)
    return effects.get(ailment.kind, kind.effect if kind is not None else "NoSchedule")


def taints_of(device: Device, effects: Effects, others: Sequence[Taint] = ()) -> tuple[Taint, ...]:
    """`others`, and one taint for each kind of ailment: its value is the gravest code, its time when the first of them began.
    Of more than a device may have the gravest: else the API server would take none of them, nor `others`.

    Of two Xids the second must not restart a toleration's seconds, nor a lighter one hide a graver (dra-driver-nvidia-gpu
    #1243).
    """
    kinds: dict[str, list[Ailment]] = {}
    for ailment in device.ailments:  # the gravest first
        kinds.setdefault(ailment.kind, []).append(ailment)
    found = (
        *others,
        *(
            Taint(
                taint_key(kind),
                same[0].code,
                effect_of(same[0], effects),
                min(ailment.since for ailment in same),
            )
            for kind, same in kinds.items()
        ),
    )
    return found[:TAINTS_MAX]


def sentence(devices: Iterable[Device], effects: Effects) -> str:
    """What ails which device, to put behind how many are published; empty when nothing does."""
    return "".join(
        f"; {device.name} {ailment.kind} ({ailment.code}): {effect_of(ailment, effects)}"
        for device in devices
        for ailment in device.ailments
    )
