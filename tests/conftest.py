"""Fixtures of the project's own tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project of fake cases in an empty folder."""
    return Project(tmp_path)
