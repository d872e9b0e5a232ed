import os
from pathlib import Path

import pytest

from tests.support.claims_world import World


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the disk is asked to sync is `test_disk`'s business; here it only costs seconds."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
