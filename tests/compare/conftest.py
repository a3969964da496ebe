"""Fixtures of tests that compare with a baseline, which each file has measured once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.harness import Project


@pytest.fixture
def stored(project: Project, baselines: Path) -> Project:
    """A project with the folder of baselines that the file's own fixture has made."""
    shutil.copytree(baselines, project.folder / "baselines")
    return project
