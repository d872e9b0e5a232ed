"""The PCIe tree of a machine file: which path each function has.

Written the way people draw it: mappings are bridges, lists and single values are what hangs below them.
"""

import re
from collections.abc import Iterable
from typing import Any

from api.pci import PciAddress
from kubeletplugin.discovery.fields import Fields

_ROOT = re.compile(r"(?:[^/\s]+/)*pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_DEPTH_MAX = 32
"""Deeper than any machine, and short enough for a path name."""


class Tree:
    """Paths below sysfs, each to be taken once by the entry that describes its function."""

    def __init__(self) -> None:
        self._paths: dict[PciAddress, str] = {}
        self._bridges: dict[PciAddress, str] = {}
        self._taken: set[PciAddress] = set()

    @classmethod
    def read(cls, top: Fields) -> "Tree":
        """The tree of the file; what is wrong with it is noted under `tree`."""
        tree = cls()
        for root, below in top.mapping("tree", required=True).values.items():
            field = f"tree.{root}"
            if not _ROOT.fullmatch(root) or {".", ".."} & set(root.split("/")):
                top.refuse(field, "is no host bridge", "name it as sysfs does, such as pci0000:50")
            tree._walk(top, below, f"devices/{root}", field, 0)
        return tree

    @property
    def bridges(self) -> Iterable[tuple[PciAddress, str]]:
        """Every bridge with its path."""
        return self._bridges.items()

    def take(self, address: PciAddress, item: Fields) -> str | None:
        """The path of the function that `item` describes; None, the reason noted, where it cannot have one."""
        if address in self._taken:
            item.refuse("pci", f"{address} is described twice", "describe each function once")
            return None
        self._taken.add(address)
        if address in self._bridges:
            item.refuse("pci", f"{address} is a bridge in the tree", "a device has nothing below it")
        elif address not in self._paths:
            item.refuse("pci", f"{address} is not in the tree", "put it in tree:, below its bridge or host bridge")
        return self._paths.get(address)

    def refuse_untaken(self, top: Fields) -> None:
        """Note the functions of the tree that no entry described."""
        for address in sorted(self._paths.keys() - self._taken):
            top.refuse("tree", f"{address} is in no list", "describe it under gpus, nics or others, or take it out")

    def _walk(self, top: Fields, value: Any, below: str, field: str, depth: int) -> None:
        if depth > _DEPTH_MAX:
            top.refuse(field, f"is more than {_DEPTH_MAX} bridges deep", "draw fewer of them")
            return
        match value:
            case "":
                pass
            case str():
                self._add(top, value, below, field, self._paths)
            case list():
                for index, item in enumerate(value):
                    self._walk(top, item, below, f"{field}[{index}]", depth + 1)
            case _:
                for key, item in value.items():
                    path = self._add(top, key, below, f"tree.{key}", self._bridges)
                    self._walk(top, item, path, f"tree.{key}", depth + 1)

    def _add(self, top: Fields, text: str, below: str, field: str, to: dict[PciAddress, str]) -> str:
        try:
            address = PciAddress.parse(text)
        except ValueError as error:
            top.refuse(field, str(error), "write the address as sysfs does: 0000:53:00.0")
            return below
        if address in self._paths or address in self._bridges:
            top.refuse(field, f"{address} is in the tree twice", "a function has one place")
        to[address] = f"{below}/{address}"
        return to[address]
