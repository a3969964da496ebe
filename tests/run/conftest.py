"""Fixtures of this folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.harness import Project


@pytest.fixture(scope="session")
def beta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a run of beta."""
    measured = Project(tmp_path_factory.mktemp("measured"))
    measured.run("-k", "beta").assert_code(0)
    return measured.folder / "results"


@pytest.fixture
def ended(project: Project, beta: Path) -> Project:
    """A project with these results."""
    shutil.copytree(beta, project.folder / "results")
    return project
