"""Shipped machines rendered once for all tests that only read them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kubeletplugin.discovery.machinefile import read
from kubeletplugin.discovery.simulated import render


@pytest.fixture(scope="session")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """The root in which a machine file is rendered for node-a. Not to be changed."""
    roots: dict[Path, Path] = {}

    def root_of(path: Path) -> Path:
        if path not in roots:
            roots[path] = tmp_path_factory.mktemp(path.stem)
            render(read(path, node="node-a"), roots[path], nodes="plain")
        return roots[path]

    return root_of
