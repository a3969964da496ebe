"""Runs the documentation's commands unchanged in a copy of the project."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
from pathlib import Path
from typing import List

import pytest

from tests.support.harness import ROOT, Outcome, run_pytest
from tests.support.repository import copy_of_the_project

DOCS = ROOT / "docs"


def commands(page: str, indent: int = 4) -> List[str]:
    """Return the pytest commands of a page or a part of it."""
    return re.findall(rf"^ {{{indent}}}pytest (.*)$", page, re.MULTILINE)


class Reader:
    """Runs pytest in processes with a framework already imported."""

    def __init__(self, folder: Path, framework: str) -> None:
        if importlib.util.find_spec(framework) is None:
            pytest.skip(f"needs {framework}: make setup installs it")
        self.folder = copy_of_the_project(folder / "project")
        self._framework = framework

    def pytest(self, command: str, *smaller: str) -> Outcome:
        """Run a command of the page, with arguments that shorten it to seconds."""
        environment = {**os.environ, "IPUBENCH_LEASE_DIR": str(self.folder.parent)}
        words = (*shlex.split(command), *smaller)
        return run_pytest(self.folder, environment, *words, framework=self._framework)
