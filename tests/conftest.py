"""Fixtures of the project's own tests."""

from __future__ import annotations

from pathlib import Path
from typing import List

import pytest

from tests.harness import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project of fake cases in an empty folder."""
    return Project(tmp_path)


def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    """Put tests of PyTorch first.

    Each kernel that TensorFlow's XLA compiles makes every later C++ exception of the process slower
    to unwind, and OpenVINO throws thousands while it converts a network: seconds become minutes.
    """
    items.sort(key=lambda item: "torch" not in item.path.name)
