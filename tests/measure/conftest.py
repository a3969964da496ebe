"""A project of somebody else's for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.own_project import OwnProject


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def own(tmp_path: Path, cache: Path) -> OwnProject:
    return OwnProject(tmp_path, cache)
