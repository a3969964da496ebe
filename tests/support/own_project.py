"""A project that only uses the plugin."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Dict, List

from tests.support.harness import (
    QUIETLY,
    ROOT,
    Outcome,
    listed,
    run_elsewhere,
    run_pytest,
)
from tests.support.repository import IDENTITY

WORK = "COUNT = 2000\n\ndef done():\n    return sum(1 for _ in range(COUNT))\n"
INI = "[pytest]\naddopts = -p ipubench --strict-markers --device=cpu\n"


class OwnProject:
    """A folder for tests that contains nothing of the suite's checkout.

    ``cache`` keeps the machine's peaks for all tests of a file.
    """

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder / "own"
        folder = self.folder
        folder.mkdir()
        self.work = folder / "src" / "work.py"
        self.work.parent.mkdir()
        (folder / "pytest.ini").write_text(INI)
        self.work.write_text(WORK)
        (folder / "tests").mkdir()
        (folder / "tests" / "conftest.py").write_text("")
        self.environment = {
            **os.environ,
            # The suite's checkout replaces site-packages.
            "PYTHONPATH": os.pathsep.join([str(self.work.parent), str(ROOT)]),
            "IPUBENCH_LEASE_DIR": str(folder.parent / "leases"),
            "IPUBENCH_CACHE_DIR": str(cache),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "COLUMNS": "100",
            # Tests change a file within a second without changing its size, so Python would use
            # outdated compiled files.
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def run(self, *words: str, alone: bool = False) -> Outcome:
        """Run ``pytest WORDS`` like a developer; if ``alone``, nothing has imported the suite."""
        if not alone:
            return run_pytest(self.folder, self.environment, *words)
        words = ("-m", "pytest", *QUIETLY, *words)
        return run_elsewhere(self.folder, self.environment, *words)

    def refused(self, *words: str) -> Outcome:
        """Return the end of a run that a usage error ends, without a process."""
        return self.listed(*words).assert_code(4)

    def listed(self, *words: str) -> Outcome:
        """Return the end of a run that calls no test, without a process."""
        return listed(self.folder, self.environment, *words)

    def commit(self, message: str) -> None:
        """Make the folder a repository with one commit."""
        (self.folder / ".gitignore").write_text("results/\n__pycache__/\n")
        git(self.folder, "init", "-q")
        git(self.folder, "add", "-A")
        git(self.folder, "commit", "-q", "-m", message)

    def lines(self) -> List[Dict[str, Any]]:
        """Return the lines of the latest run's journal."""
        journal = sorted((self.folder / "results").glob("run-*.jsonl"))[-1]
        return [json.loads(line) for line in journal.read_text().splitlines()]

    def records(self) -> Dict[str, Dict[str, Any]]:
        """Return identifier -> benchmark of the latest run."""
        found = [line["benchmark"] for line in self.lines() if line["type"] == "case"]
        return {one["extra_info"]["ipubench"]["name"]: one for one in found}

    def write(self, text: str) -> None:
        """Write the project's tests."""
        (self.folder / "tests" / "test_own.py").write_text(text)


def git(folder: Path, *words: str) -> None:
    """Run git in a folder."""
    subprocess.run(["git", *IDENTITY, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
