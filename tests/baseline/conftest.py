"""Fixtures of this folder: a stored baseline and the baseline commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipubench.plugins.baseline.store import save
from tests.support.baselines import Shell, document, entry
from tests.support.harness import Project


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the file of a baseline with the case "a"."""
    save(tmp_path / "baselines" / "main.json", document(entry()))
    return tmp_path / "baselines" / "main.json"


@pytest.fixture
def shell(project: Project) -> Shell:
    """Return the commands of baselines in a project of fake cases."""
    return Shell(project)
