"""Lists all cases of a suite by collecting them in a separate process.

This module is also the pytest plugin of that process.
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
#: The plugin that makes the cases: without it, no case has its name.
EXPANDS = "ipubench.plugins.session"
#: OK, or options deselected everything.
COLLECTED = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
LAST_LINES = 8


# Runs before any plugin deselects some.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Write the node ids of all cases, even those that this machine cannot run; or null."""
    if VARIABLE in os.environ:
        expanded = config.pluginmanager.has_plugin(EXPANDS)
        text = json.dumps([item.nodeid for item in items] if expanded else None)
        Path(os.environ[VARIABLE]).write_text(text, encoding="utf-8")


def all_cases(root: Path) -> Set[str]:
    """Return the node ids of the suite in a folder. Raises BaselineError if collecting fails.

    Pytest collects as for a run, with all options of the project's settings, because these may load
    the plugin. Options that deselect cases act after the hook above.
    """
    with scratch.folder("collected") as folder:
        found = folder / "cases.json"
        words = ["--collect-only", "-q", "-p", __name__, "--disable-warnings", "--tb=short"]
        # Options may need the cache, and an empty one selects nothing.
        words += ["-o", f"cache_dir={folder / 'cache'}"]
        answer = subprocess.run(
            [sys.executable, "-m", "pytest", *words],
            cwd=str(root),
            env={**os.environ, VARIABLE: str(found)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        cases = json.loads(found.read_text(encoding="utf-8")) if found.exists() else []
        if cases is None:
            raise BaselineError(
                f"nothing was pruned: pytest in {root} does not load the plugin, without which no "
                "case has its name; write -p ipubench into addopts of its settings, or "
                'pytest_plugins = ["ipubench"] into conftest.py'
            )
        if answer.returncode not in COLLECTED or not cases:
            output = answer.stdout.decode(errors="replace").splitlines()[-LAST_LINES:]
            raise BaselineError(
                f"nothing was pruned: the suite in {root} cannot be collected (pytest's exit code "
                f"{answer.returncode}); run this in the suite's folder. Its last lines:\n"
                + "\n".join(output)
            )
        return set(cases)
