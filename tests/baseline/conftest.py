"""The stored baseline that tests of this folder read and change."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipubench.plugins.baseline.store import save
from tests.support.baselines import document, entry


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the file of a baseline with the case "a"."""
    save(tmp_path / "baselines" / "main.json", document(entry()))
    return tmp_path / "baselines" / "main.json"
