"""Which cases the suite has now: a collection in a process of its own, before any is left out.

This module is also the pytest plugin that this process loads.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import List, Set

import pytest

from ipubench.fixtures.machine import scratch
from ipubench.plugins.baseline.format import BaselineError

VARIABLE = "IPUBENCH_COLLECTED_FILE"
LAST_LINES = 8


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    """Write the node ids of all cases, also of those that this machine cannot run."""
    if VARIABLE in os.environ:
        text = json.dumps([item.nodeid for item in items])
        Path(os.environ[VARIABLE]).write_text(text, encoding="utf-8")


def all_cases(root: Path) -> Set[str]:
    """Return the node ids of the suite in a folder. Raises BaselineError if it cannot collect."""
    with scratch.folder("collected") as folder:
        found = folder / "cases.json"
        kept = {key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"}
        words = [
            "--collect-only",
            "-q",
            "-p",
            "ipubench.plugins.baseline.collected",
            "-o",
            "addopts=",
            "--disable-warnings",
        ]
        answer = subprocess.run(
            [sys.executable, "-m", "pytest", *words, "-p", "no:cacheprovider", "--tb=short"],
            cwd=str(root),
            env={**kept, VARIABLE: str(found)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if answer.returncode != 0 or not found.exists():
            output = answer.stdout.decode(errors="replace").splitlines()[-LAST_LINES:]
            raise BaselineError(
                f"nothing was pruned: the suite in {root} cannot be collected (pytest's exit code "
                f"{answer.returncode}); run this in the suite's folder. Its last lines:\n"
                + "\n".join(output)
            )
        return set(json.loads(found.read_text(encoding="utf-8")))
