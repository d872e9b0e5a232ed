"""What can ail a GPU: the kinds, and the one table from a code to what it means and what to do.

Seen by the node's plugin (`kubeletplugin.health`), kept in the NodeInventory, made into device taints by the controller.
"""

from collections.abc import Mapping
from dataclasses import dataclass

LOST = "lost"
RESET = "reset-needed"
XID = "xid"
MEMORY = "memory"
NVML = "nvml"
MEMORY_PENDING = "memory-pending"
XID_UNKNOWN = "xid-unknown"

OFF_THE_BUS = "off-the-bus"
"""The code of `lost`, whoever notices it first: NVML, the event set, or that a GPU is missing."""
UNCORRECTABLE = "ecc-uncorrectable"
SRAM_THRESHOLD = "sram-threshold"
REMAP_FAILED = "remap-failed"
REMAP_PENDING = "remap-pending"
RETIREMENT_PENDING = "retirement-pending"
RESET_REQUIRED = "reset-required"

AILMENTS_MAX = 16
"""Of one GPU, in the NodeInventory."""


@dataclass(frozen=True, slots=True)
class Ailment:
    """Something is the matter with a GPU."""

    kind: str
    """One of `KINDS`, or one that a later version knows. A DNS label: with our domain before it, the key of a taint."""
    code: str
    """What exactly: a label value, such as `off-the-bus` or `48`."""
    since: str
    """When it was first seen: RFC 3339 with whole seconds, UTC."""
    message: str
    remedy: str

    @property
    def sentence(self) -> str:
        """All of it, for people."""
        return f"{self.message}, since {self.since}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of ailment: what administrators set the effect of."""

    name: str
    serious: bool
    """Whether work on the GPU cannot be relied on. What is not serious is reported, and pods may be put on the GPU."""
    what: str
    ends: str
    """When it is over."""

    @property
    def effect(self) -> str:
        """Of the device taint, unless it is set otherwise."""
        return "NoSchedule" if self.serious else "None"


_RESET_CLEARS = (
    "when the GPU was reset (it asked for a reset and does so no longer, or was lost and is back), when the kernel module was "
    "loaded anew, after a reboot, or on an administrator's word"
)
KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(LOST, serious=True, what="the GPU does not answer", ends="when NVML answers for the same UUID again"),
        Kind(
            RESET,
            serious=True,
            what="the driver says that the GPU needs a reset, or more",
            ends="when the driver no longer says so",
        ),
        Kind(
            XID, serious=True, what="the driver reported an Xid that means trouble with the device", ends=_RESET_CLEARS
        ),
        Kind(MEMORY, serious=True, what="the GPU's memory cannot be relied on", ends="when NVML no longer says so"),
        Kind(
            NVML,
            serious=True,
            what="NVML answers for this GPU with errors, twice in a row",
            ends="with the first answer without",
        ),
        Kind(
            MEMORY_PENDING,
            serious=False,
            what="bad memory was found, and is put aside at the next reset",
            ends="as `memory`",
        ),
        Kind(XID_UNKNOWN, serious=False, what="an Xid that is not in the table", ends=_RESET_CLEARS),
    )
}
"""In the order of their weight. Only a reboot forgets a GPU that is gone."""


SOURCES: Mapping[int, str] = {
    1: "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
    2: "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/error-recovery-and-response-flags.html",
    3: "https://docs.nvidia.com/deploy/dynamic-page-retirement/",
    4: "https://docs.nvidia.com/deploy/nvml-api/",
}
"""What the tables below name by number. Of the Xid catalogue its column "immediate action" counts."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a code of NVML's means."""

    kind: str
    code: str
    message: str
    remedy: str
    source: str


_DO_RESET = "when nothing uses the GPU: nvidia-smi --gpu-reset -i GPU, or reboot the node"
_REPLACE = "have the card looked at: such a GPU is replaced"

MEANINGS: tuple[Meaning, ...] = (
    Meaning(
        LOST,
        OFF_THE_BUS,
        "the GPU has fallen off the bus",
        "look at the kernel's log; reboot the node, and if it happens again have the card and its slot looked at",
        "GPU_IS_LOST [4], Xid 79 [1]",
    ),
    Meaning(RESET, RESET_REQUIRED, "the driver wants the GPU reset", _DO_RESET, "RESET_REQUIRED [4]"),
    Meaning(RESET, "gpu-reset", "the GPU needs a reset", _DO_RESET, "recovery action 1 [2]"),
    Meaning(
        RESET,
        "node-reboot",
        "the GPU needs a reboot of its node",
        "drain the node and reboot it",
        "recovery action 2 [2]",
    ),
    Meaning(
        RESET,
        "drain-p2p",
        "work that uses this GPU from other GPUs must end",
        "end the pods on this GPU and on those that talk to it over NVLink",
        "recovery action 3 [2]",
    ),
    Meaning(
        RESET,
        "drain-and-reset",
        "work that other GPUs share with this one must end, and it needs a reset",
        f"let running pods end, start none; {_DO_RESET}",
        "recovery action 4 [2]",
    ),
    Meaning(
        RESET,
        "recover-imex-domain",
        "the IMEX domain must be recovered",
        "see NVIDIA's IMEX guide",
        "recovery action 5 [4]",
    ),
    Meaning(RESET, "bus-reset", "the GPU needs a reset of its PCIe bus", "reboot the node", "recovery action 6 [4]"),
    Meaning(
        RESET, "system-reboot", "the system must be rebooted", "drain the node and reboot it", "recovery action 7 [4]"
    ),
    Meaning(
        RESET,
        "other-action",
        "the driver wants something done that is not known here",
        "nvidia-smi -q",
        "recovery action above 7",
    ),
    Meaning(
        MEMORY,
        REMAP_FAILED,
        "a bad row of memory could not be replaced by a spare one",
        _REPLACE,
        "row remapping failure [2]",
    ),
    Meaning(
        MEMORY,
        SRAM_THRESHOLD,
        "there were too many uncorrectable errors in SRAM",
        _REPLACE,
        "SRAM threshold exceeded [4]",
    ),
    Meaning(
        MEMORY,
        UNCORRECTABLE,
        "uncorrectable memory errors since the driver was loaded",
        _DO_RESET,
        "volatile count on cards without row remapping [3]",
    ),
    Meaning(
        MEMORY_PENDING,
        REMAP_PENDING,
        "a bad row of memory waits to be replaced",
        _DO_RESET,
        "row remapping pending [2]",
    ),
    Meaning(
        MEMORY_PENDING,
        RETIREMENT_PENDING,
        "a bad page of memory waits to be retired",
        _DO_RESET,
        "page retirement pending [3]",
    ),
)

RECOVERY_ACTIONS: Mapping[int, str] = {
    1: "gpu-reset",
    2: "node-reboot",
    3: "drain-p2p",
    4: "drain-and-reset",
    5: "recover-imex-domain",
    6: "bus-reset",
    7: "system-reboot",
}
"""NVML_GPU_RECOVERY_ACTION_* to our codes; nvml.h of CUDA 13."""


@dataclass(frozen=True, slots=True)
class Xids:
    """What Xids mean, by number [1]."""

    numbers: tuple[int, ...]
    what: str
    kind: str | None
    """None: no ailment; the GPU is as good as before, or something else tells."""
    linked: bool = False
    """Whether the driver sets the recovery action with it (the catalogue's column "Xid 154 linkage", R565 or R570): no action
    wanted then means that the GPU is well."""


_APPLICATION = "a program's fault or end"
_ENGINE = "a unit of the GPU stopped a program's work; a restart of the program is enough"
_HARMLESS = "nothing need be done"
_TOLD_OTHERWISE = "of memory, and more of what 48, 94 or NVML itself tell (`memory`, `memory-pending`)"
_RECOVERY = "serious or not by details that NVML does not hand on; the driver sets the recovery action (`reset-needed`)"

XIDS: tuple[Xids, ...] = (
    Xids((79,), "the GPU has fallen off the bus", LOST),
    Xids((46,), "the GPU stopped processing", XID),
    Xids((48,), "an uncorrectable memory error", XID, linked=True),
    Xids((54,), "the board's auxiliary power is not connected", XID),
    Xids((62,), "the power management unit halted", XID, linked=True),
    Xids((64,), "bad memory could not be put aside", XID, linked=True),
    Xids((74,), "an NVLink error", XID, linked=True),
    Xids((95,), "a memory error that was not contained", XID, linked=True),
    Xids((110,), "a security fault", XID, linked=True),
    Xids((119, 120), "the GPU system processor does not answer", XID),
    Xids((136,), "an NVLink was not trained", XID, linked=True),
    Xids((140,), "uncorrectable memory errors that the driver could not handle", XID),
    Xids((143,), "the GPU could not be initialised", XID),
    Xids((151,), "the rotation of keys went wrong", XID),
    # Case J1 (dra-driver-nvidia-gpu #689): what any user's program can bring about says nothing about the device.
    Xids((8, 11, 13, 25, 31, 32, 43, 45, 69, 80), _APPLICATION, None),
    Xids(
        (
            *(39, 40, 41, 60, 68, 70, 71, 72, 75, 76, 77, 82, 83, 84, 85, 86, 88, 89),
            *range(96, 106),
            *range(126, 136),
            139,
        ),
        _ENGINE,
        None,
    ),
    Xids(
        (14, 37, 38, 44, 66, 67, 106, 107, 108, 121, 137, 141, 152, 153, 160, 161, 162, 163, 164, 165), _HARMLESS, None
    ),
    Xids((63, 92, 93, 94, 157, 171, 172), _TOLD_OTHERWISE, None),
    # 109: the catalogue asks for a reset, NVIDIA's device plugin and DRA driver ignore it; since R570 the driver says which.
    Xids((109, *range(144, 151), 154, 155, 156, 158, 159), _RECOVERY, None),
)

_BY_CODE: Mapping[tuple[str, str], Meaning] = {(meaning.kind, meaning.code): meaning for meaning in MEANINGS}
_BY_XID: Mapping[int, Xids] = {number: xids for xids in XIDS for number in xids.numbers}
_RANK = {name: rank for rank, name in enumerate(KINDS)}
_CODE_RANK = {meaning.code: rank for rank, meaning in enumerate(MEANINGS)}


def known(kind: str, code: str, since: str) -> Ailment:
    """An ailment of `MEANINGS`; KeyError for a code that is not there."""
    meaning = _BY_CODE[kind, code]
    return Ailment(kind, code, since, meaning.message, meaning.remedy)


def nvml_error(code: str, error: str, since: str) -> Ailment:
    """NVML answered with `error`, in its words; `code` is the same as a label value."""
    remedy = "see what nvidia-smi and the kernel's log say; a reset of the GPU or a reboot of the node may mend it"
    return Ailment(NVML, code, since, f"NVML answers: {error}", remedy)


def of_xid(number: int, since: str) -> Ailment | None:
    """What an Xid says of the device; None where it says nothing. One that the table lacks is told, as `xid-unknown`."""
    xids = _BY_XID.get(number)
    if xids is None:
        what = "not known to this version; see NVIDIA's Xid catalogue"
        return Ailment(XID_UNKNOWN, str(number), since, f"Xid {number}: {what}", "see the kernel's log")
    if xids.kind is None:
        return None
    if xids.kind == LOST:
        return known(LOST, OFF_THE_BUS, since)
    return Ailment(XID, str(number), since, f"Xid {number}: {xids.what}", _DO_RESET)


def is_linked(ailment: Ailment) -> bool:
    """Whether the driver's recovery action has the last word on this `xid`."""
    xids = _BY_XID.get(int(ailment.code)) if ailment.kind == XID and ailment.code.isdecimal() else None
    return xids is not None and xids.linked


def is_serious(ailment: Ailment) -> bool:
    """Of a kind that only a later version knows: yes."""
    kind = KINDS.get(ailment.kind)
    return kind is None or kind.serious


def weight(ailment: Ailment) -> tuple[int, int, str, str]:
    """To sort by: the gravest first, and of equal ones the oldest."""
    code = _CODE_RANK.get(ailment.code, len(_CODE_RANK))
    return _RANK.get(ailment.kind, len(_RANK)), code, ailment.since, ailment.code
