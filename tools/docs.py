"""The parts of the documentation that the code says already, so that it is written once.

A block stands in a page between two comments, and `make gen` rewrites what is between them:

    <!-- generated: claim-states -->
    <!-- end of generated -->

What a block says comes from the modules that the programs run with. `tools/gen.py` calls `pages`.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

from api import health
from api.names import ClaimRef
from api.pci import PciAddress
from api.refusals import BadInput, Reason
from controller import metrics as controller_metrics
from controller import settings as controller_settings
from controller.attributes import Description, describe
from controller.device import Value, Version
from kubeletplugin import metrics as plugin_metrics
from kubeletplugin import settings as plugin_settings
from kubeletplugin.claims import notices, refusals
from kubeletplugin.claims.states import TABLE, Event, State
from kubeletplugin.discovery import machinefile

ROOT = Path(__file__).resolve().parent.parent
_BLOCK = re.compile(r"(<!-- generated: (?P<name>[a-z-]+) -->\n).*?(<!-- end of generated -->)", re.DOTALL)


NONE = "\N{EN DASH}"
"""An empty cell."""


class UnknownBlock(Exception):  # noqa: N818  # says what the page asks for
    """A page asks for a block that nobody makes."""


def pages(root: Path) -> dict[Path, bytes]:
    """Every page below `root` that has blocks, by its path relative to `root`, with the blocks as they should be."""
    found: dict[Path, bytes] = {}
    for path in sorted((*root.glob("*.md"), *root.glob("docs/*.md"))):
        text = path.read_text(encoding="utf-8")
        if _BLOCK.search(text):
            found[path.relative_to(root)] = _BLOCK.sub(_filled, text).encode()
    return found


def _filled(match: re.Match[str]) -> str:
    make = BLOCKS.get(match["name"])
    if make is None:
        raise UnknownBlock(f"no block {match['name']}; there are {', '.join(BLOCKS)}")
    return f"{match[1]}\n{make().strip()}\n\n{match[3]}"


# Tables.


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(_cell_text, line))} |" for line in lines)


def _cell_text(text: str) -> str:
    """What Markdown would take for a tag or for the end of the cell is escaped."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def _said_of(owner: type) -> dict[str, str]:
    """The sentences below the fields or members of a class, which only its source has."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    assert isinstance(body, ast.ClassDef)
    said: dict[str, str] = {}
    for statement, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            match statement:
                case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                    # Numbers of cases are for those who read the code.
                    said[name] = re.sub(r" \(Cases? [^)]*\)", "", " ".join(after.value.value.split()))
                case _:
                    pass
    return said


# Settings.


def settings(module: Any) -> str:
    """One row for each flag of a program; why it is as it is stands below its field."""
    said = _said_of(module.Settings)
    rows = []
    for flag, variable, default, text in module._FLAGS:  # noqa: SLF001  # what the program itself makes its parser from
        field = flag.removeprefix("--").replace("-", "_")
        # The first sentence says again what it is; why it is so comes after it.
        _, _, why = said.get(_FIELDS.get(field, field), "").partition(". ")
        what = f"{text}. {why}" if why else text
        rows.append((f"`{flag}`", f"`{variable}`", f"`{default}`" if default else NONE, what))
    return _table(("flag", "environment", "default", "what it is"), rows)


_FIELDS = {"node_name": "node", "driver_name": "driver"}
"""Fields that are not named as their flags are."""


# Attributes and capacity.

MEANINGS = {
    "type": "always `gpu`: a whole GPU",
    "uuid": "the GPU's UUID, as `nvidia-smi -L` shows it",
    "productName": "what it is",
    "brand": "its product line",
    "architecture": "its generation",
    "cudaComputeCapability": "compute capability",
    "driverVersion": "the NVIDIA driver; leading zeros are dropped, for a version has none",
    "driverVersionRaw": "the same as the driver writes it; only where that differs from `driverVersion`",
    "cudaDriverVersion": "the highest CUDA version that the driver serves",
    "resource.kubernetes.io/pciBusID": "its PCI address",
    "resource.kubernetes.io/pcieRoot": "its root complex; other drivers publish the same name",
    "resource.kubernetes.io/numaNode": "the NUMA node that it is near; absent where the kernel knows none",
    "lanewise.dev/pcieSwitch": "the closest PCIe switch above it, by its upstream port; absent where there is none",
    "lanewise.dev/pcieRootPort": "the port of the root complex that it hangs below",
    "memory": "its memory, as NVML says; absent where it is the host's",
}


def attributes() -> str:
    """What is published of a GPU, with the values of a real kind of machine."""
    machine = machinefile.read(ROOT / "examples/machines/hgx-h100.yaml", node="localhost")
    said = describe(machine.gpus[0], machine.driver)
    odd = describe(machine.gpus[0], replace(machine.driver, version="550.054.14"))
    rows = [(f"`{name}`", *_told(value), MEANINGS[name]) for name, value in _merged(said, odd).items()]
    rows += [(f"`{name}`", "capacity", f"`{value}`", MEANINGS[name]) for name, value in said.capacity.items()]
    return _table(("name", "kind", "example", "what it is"), rows)


def _merged(said: Description, odd: Description) -> dict[str, Value]:
    merged: dict[str, Value] = {}
    for name, value in odd.attributes.items():
        merged[name] = said.attributes.get(name, value)
    return merged


def _told(value: Value) -> tuple[str, str]:
    match value:
        case Version(text):
            return "version", f"`{text}`"
        case bool():
            return "bool", f"`{str(value).lower()}`"
        case int():
            return "int", f"`{value}`"
        case _:
            return "string", f"`{value}`"


# Refusals and notices.

_CLAIM = ClaimRef("NAMESPACE", "NAME", "UID")
_PREFIX = f"claim {_CLAIM}: "
_SAMPLES: Mapping[str, Any] = {
    "claim": _CLAIM,
    "why": "WHY",
    "uid_now": "OTHER-UID",
    "index": 0,
    "driver": "gpu.lanewise.dev",
    "kind": "kind 'KIND'",
    "from_class": False,
    "device": "DEVICE",
    "devices": ("DEVICE",),
    "pool": "OTHER-NODE/gpu.lanewise.dev",
    "node": "NODE",
    "address": PciAddress(0, 0x65, 0, 0),
    "holder": ClaimRef("OTHER-NAMESPACE", "OTHER-NAME", "OTHER-UID"),
    "holder_uid": "OTHER-UID",
    "path": "PATH",
    "problem": "PROBLEM",
    "before": ("DEVICE",),
    "now": ("OTHER-DEVICE",),
    "format": 2,
    "seconds": 30.0,
    "uid": "UID",
    "since": "2026-11-30T12:00:00Z",
    "cure": "CURE",
}


def sample(kind: type) -> Reason:
    """A reason of this kind with words in capitals where a real one has names."""
    values = {name: _SAMPLES[name] for name in inspect.signature(kind).parameters}
    if kind is refusals.Silent:
        values["why"] = BadInput("https://SERVER:6443", "connection refused", "see whether the API server runs")
    reason: Reason = kind(**values)
    return reason


def reasons(module: Any) -> tuple[type, ...]:
    """The reasons that a module defines, in its order."""
    return tuple(
        kind
        for kind in vars(module).values()
        if inspect.isclass(kind) and kind.__module__ == module.__name__ and hasattr(kind, "remedy")
    )


def _reason_rows(kinds: Iterable[type]) -> list[tuple[str, str, str]]:
    return [(f"`{kind.__name__}`", sample(kind).what.removeprefix(_PREFIX), sample(kind).remedy) for kind in kinds]


def told_refusals() -> str:
    """What a user reads in an Event."""
    kinds = [kind for kind in reasons(refusals) if kind not in refusals.PASSING]
    return _table(("reason", "what it says", "what to do, as it says"), _reason_rows(kinds))


def passing_refusals() -> str:
    """What only the log and the metrics have."""
    return _table(("kind", "what it says", "what to do, as it says"), _reason_rows(refusals.PASSING))


def told_notices() -> str:
    """What a user reads of a prepared claim."""
    return _table(("reason", "what it says", "what to do, as it says"), _reason_rows(reasons(notices)))


# Metrics.


def metrics(module: Any) -> str:
    """What a program measures; what it has in common with the other one stands with both."""
    rows = [
        (f"`{family.name}`", family.kind, ", ".join(f"`{label}`" for label in family.labels) or NONE, family.says)
        for family in module.FAMILIES
    ]
    return _table(("name", "kind", "labels", "what it says"), rows)


# The life of a claim.


def claim_states() -> str:
    """The states, and the table of what each event does in each."""
    said = _said_of(State)
    states = _table(("state", "what lies on disk"), [(state.value, said[state.name]) for state in State])
    events = tuple(Event)
    rows = [(state.value, *(_cell(state, event) for event in events)) for state in State]
    return f"{states}\n\n{_table(('state', *(event.value for event in events)), rows)}"


def _cell(state: State, event: Event) -> str:
    found = TABLE.get((state, event))
    if found is None:
        return NONE
    steps = ", ".join(step.value for step in found.steps) or "nothing"
    return f"{steps} → {_either(found.then)}"


def _either(states: Iterable[State]) -> str:
    return " or ".join(state.value for state in State if state in frozenset(states))


def claim_diagram() -> str:
    """The same as a picture, without the steps."""
    edges: dict[tuple[State, State], list[Event]] = {}
    for (before, event), found in TABLE.items():
        for after in State:
            if after in found.then:
                edges.setdefault((before, after), []).append(event)
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> absent"]
    lines += [f'    state "{state.value}" as {_id(state)}' for state in State if " " in state.value]
    lines += [
        f"    {_id(before)} --> {_id(after)}: {', '.join(event.value for event in events)}"
        for (before, after), events in edges.items()
    ]
    return "\n".join([*lines, "```"])


def _id(member: Enum) -> str:
    return str(member.value).replace(" ", "_")


# What ails GPUs.


def ailment_kinds() -> str:
    """The kinds, the gravest first."""
    rows = [(f"`{kind.name}`", kind.what, f"`{kind.effect}`", kind.ends) for kind in health.KINDS.values()]
    return _table(("kind", "what it is", "effect", "when it ends"), rows)


def ailment_codes() -> str:
    """What NVML can say of a GPU."""
    rows = [
        (f"`{meaning.kind}`", f"`{meaning.code}`", meaning.message, meaning.remedy, meaning.source)
        for meaning in health.MEANINGS
    ]
    sources = "; ".join(f"[{number}] {source}" for number, source in health.SOURCES.items())
    return f"{_table(('kind', 'code', 'what it means', 'what to do', 'by'), rows)}\n\nBy: {sources}"


def xids() -> str:
    """What Xids mean."""
    rows = [
        (_ranges(each.numbers), each.what, f"`{each.kind}`" if each.kind else NONE, "yes" if each.linked else "")
        for each in health.XIDS
    ]
    rows.append(("all others", "not in the table", f"`{health.XID_UNKNOWN}`", ""))
    return _table(("Xid", "what it is", "kind", "ends when the driver wants no action"), rows)


def _ranges(numbers: Sequence[int]) -> str:
    """1, 2, 3, 5 as `1-3, 5`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


BLOCKS: Mapping[str, Callable[[], str]] = {
    "attributes": attributes,
    "refusals": told_refusals,
    "passing-refusals": passing_refusals,
    "notices": told_notices,
    "ailment-kinds": ailment_kinds,
    "ailment-codes": ailment_codes,
    "xids": xids,
    "claim-states": claim_states,
    "claim-diagram": claim_diagram,
    "kubeletplugin-settings": lambda: settings(plugin_settings),
    "controller-settings": lambda: settings(controller_settings),
    "kubeletplugin-metrics": lambda: metrics(plugin_metrics),
    "controller-metrics": lambda: metrics(controller_metrics),
}
"""By the name in the page."""
