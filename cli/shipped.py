"""Where the manifests and examples are that come with Lanewise: in a checkout, or in the installed package."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from api.refusals import BadInput, Refused

_PACKAGE = Path(__file__).resolve().parent
_ROOTS = (_PACKAGE.parent, _PACKAGE / "shipped_files")
"""The top of a checkout, and what the wheel carries (pyproject.toml, force-include)."""


def shipped(name: str) -> Path:
    """A file or folder such as `deploy/crds` or `examples/machines/hgx-h100.yaml`. Refused when this installation has none."""
    for root in _ROOTS:
        # In site-packages `deploy` or `examples` could be anybody's: ours stand beside each other.
        if (root / "deploy/crds/nodeinventories.yaml").is_file() and (root / name).exists():
            return root / name
    problem = f"is neither in {_ROOTS[0]} nor in {_ROOTS[1]}"
    raise Refused(BadInput(name, problem, "install Lanewise from its wheel, or run it in a checkout of its repository"))


def documents(path: Path) -> Iterator[dict[str, Any]]:
    """The objects in a YAML file, or in those of a folder in the order of their names."""
    for file in sorted(path.glob("*.yaml")) if path.is_dir() else [path]:
        yield from (document for document in yaml.safe_load_all(file.read_text(encoding="utf-8")) if document)
