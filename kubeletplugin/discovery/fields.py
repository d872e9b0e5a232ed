"""Reading fields of parsed YAML strictly, with every fault noted under the field's path.

Scalars are text here: what a value means is for the field to say, not for YAML.
"""

import difflib
import re
from collections.abc import Mapping
from typing import Any

import yaml

from api.pci import PciAddress
from api.refusals import BadInput, Reason, Refused

_INTERFACE = re.compile(r"[^\s/:]{1,64}")


class _Strings(yaml.BaseLoader):
    """YAML in which every scalar is the text that was written.

    YAML 1.1 takes 0000:50:01.0 for a number to the base 60 and 550.54 for a float; what a value is, its field says.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002  # PyYAML's
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a field name must be text", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value} is there twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def load(text: str, source: str) -> Mapping[str, Any]:
    """The top mapping of a YAML text, every scalar as text; Refused with file and line when there is none."""
    try:
        # A BaseLoader makes nothing but text, lists and mappings.
        loaded: object = yaml.load(text, Loader=_Strings)  # noqa: S506
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise Refused(BadInput(f"{source}{line}", f"is no YAML: {error.problem}", "mend the line")) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Refused(BadInput(source, f"is no YAML: {str(error).splitlines()[0]}", "mend it")) from error
    if not isinstance(loaded, dict):
        remedy = "begin with name:, gpus: and tree: as in examples/machines/hgx-h100.yaml"
        raise Refused(BadInput(source, "is no mapping of fields", remedy))
    return loaded


class Fields:
    """One mapping of the file. Every reader notes what is wrong and returns something harmless."""

    def __init__(
        self,
        values: Mapping[str, Any],
        path: str,
        source: str,
        wrong: list[Reason],
        *,
        shared: "Fields | None" = None,
    ) -> None:
        """`path` is where the mapping stands in the file, empty for the top; faults are added to `wrong`. `shared` has the
        fields that are not given here."""
        self.values: Mapping[str, Any] = {**shared.values, **values} if shared is not None else values
        self._own, self._shared = frozenset(values), shared
        self._path, self._source, self._wrong = path, source, wrong

    def refuse(self, field: str, problem: str, remedy: str) -> None:
        """Note a fault of this field, where the field was written, once."""
        if self._shared is not None and field not in self._own and field in self.values:
            self._shared.refuse(field, problem, remedy)
            return
        where = f"{self._path}.{field}" if self._path else field
        fault = BadInput(f"{self._source}: {where}", problem, remedy)
        if fault not in self._wrong:
            self._wrong.append(fault)

    def over(self, shared: "Fields") -> "Fields":
        """These fields, and those of `shared` that are not given here."""
        return Fields(self.values, self._path, self._source, self._wrong, shared=shared)

    def text(self, field: str, *, required: bool = True) -> str:
        value: object = self.values.get(field, "")
        if not isinstance(value, str):
            self.refuse(field, "is no text", "write one value")
            return ""
        if required and not value:
            self.refuse(field, "is missing", "give it a value")
        return value

    def matching(
        self, field: str, pattern: re.Pattern[str], noun: str, example: str, *, required: bool = False
    ) -> str | None:
        value = self.text(field, required=required)
        if value and not pattern.fullmatch(value):
            self.refuse(field, f"{value!r} is not {noun}", f"write it like {example}")
        return value or None

    def integer(self, field: str, low: int, high: int) -> int | None:
        value = self.text(field, required=False)
        if not value:
            return None
        if not (value.isascii() and value.isdigit() and len(value) <= 18 and low <= int(value) <= high):
            self.refuse(
                field, f"{value!r} is no whole number from {low} to {high}", "write one, or leave the field out"
            )
            return None
        return int(value)

    def integers(self, field: str, low: int, high: int) -> tuple[int, ...]:
        """One number or a list of them."""
        value = self.values.get(field, [])
        items = [value] if isinstance(value, str) and value else value or []
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            self.refuse(field, "is no list of numbers", "write it like [48, 79]")
            return ()
        found = []
        for item in items:
            if not (item.isascii() and item.isdigit() and len(item) <= 18 and low <= int(item) <= high):
                self.refuse(field, f"{item!r} is no whole number from {low} to {high}", "write it like [48, 79]")
                return ()
            found.append(int(item))
        return tuple(found)

    def truth(self, field: str) -> bool | None:
        value = self.text(field, required=False)
        if value not in ("", "true", "false"):
            self.refuse(field, f"{value!r} is neither true nor false", "write true or false, or leave the field out")
        return value == "true" if value else None

    def address(self, field: str) -> PciAddress | None:
        """A PCI address; only `pci` is required."""
        value = self.values.get(field, "")
        if not value and field != "pci":
            return None
        try:
            return PciAddress.parse(value if isinstance(value, str) else "")
        except ValueError as error:
            problem = str(error) if value else "is missing"
            self.refuse(field, problem, "write the address as sysfs does: 0000:53:00.0")
            return None

    def names(self, field: str) -> tuple[str, ...]:
        """Names of network interfaces or RDMA devices; each becomes a directory."""
        value = self.values.get(field, [])
        items = [value] if isinstance(value, str) and value else value or []
        good = isinstance(items, list) and all(
            isinstance(item, str) and _INTERFACE.fullmatch(item) and item not in (".", "..") for item in items
        )
        if not good:
            self.refuse(field, "is no list of interface names", "write it like [eth0, eth1]")
            return ()
        return tuple(sorted(set(items)))

    def mapping(self, field: str, *, required: bool) -> "Fields":
        value = self.values.get(field, "")
        path = f"{self._path}.{field}" if self._path else field
        if isinstance(value, dict):
            return Fields(value, path, self._source, self._wrong)
        if value or required:
            self.refuse(field, "is no mapping of fields" if value else "is missing", "write it as field: value lines")
        return Fields({}, path, self._source, self._wrong)

    def mappings(self, field: str) -> list["Fields"]:
        value = self.values.get(field, "")
        if not value:
            return []
        if not isinstance(value, list):
            self.refuse(field, "is no list", "begin each entry with a dash")
            return []
        found = []
        for index, item in enumerate(value):
            if isinstance(item, dict):
                found.append(Fields(item, f"{field}[{index}]", self._source, self._wrong))
            else:
                self.refuse(f"{field}[{index}]", "is no mapping of fields", "write it like {pci: 0000:53:00.0}")
        return found


def no_unknown(fields: Fields, known: tuple[str, ...]) -> None:
    """Note every field that is not among `known`, with the nearest one that is."""
    for name in fields.values:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            remedy = f"did you mean {near[0]}?" if near else f"the fields are {', '.join(known)}"
            fields.refuse(name, "is no field", remedy)
