"""Another Python environment that cases are measured in: `--against=PYTHON`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Mapping

import pytest

from ipubench.fixtures.machine.files import IMPORT_ROOT, user_path

CHECK_SECONDS = 300.0
# Everything that a case needs but its framework, and what it would be measured with.
PROGRAM = """\
import json, sys
sys.path[:0] = sys.argv[1:]
import pytest, pytest_benchmark
import ipubench.plugins.measure.meter
from ipubench.plugins.record.host_process import versions
print(json.dumps(versions()))
"""
# Of this environment, and wrong in another.
OURS = ("PYTHONPATH", "PYTHONHOME", "PYTHONEXECUTABLE", "VIRTUAL_ENV", "CONDA_PREFIX")


@dataclass(frozen=True)
class Environment:
    """An interpreter with what is installed for it; ``folders`` hold this project's modules."""

    python: str
    folders: List[str]
    versions: Dict[str, str]

    def variables(self, ours: Mapping[str, str]) -> Dict[str, str]:
        """Return the environment variables for its processes, given those of ours."""
        kept = {name: value for name, value in ours.items() if name not in OURS}
        return {**kept, "PYTHONPATH": os.pathsep.join(self.folders)}

    def changes(self, now: Mapping[str, str]) -> str:
        """Return in words which versions differ between there and here."""
        found = [
            f"{name} {before} -> {now[name]}"
            for name, before in self.versions.items()
            if now.get(name, before) != before
        ]
        for where, names in (
            ("only there", set(self.versions) - set(now)),
            ("only here", set(now) - set(self.versions)),
        ):
            if names:
                found.append(f"{where}: {' '.join(sorted(names))}")
        return ", ".join(found) or "the same versions"


def find(given: str, root: Path) -> Environment:
    """Look at the interpreter that ``--against`` names; UsageError where it is of no use."""
    python = shutil.which(os.path.expanduser(given))
    if python is None:
        try:
            problem = "cannot be executed" if user_path(given).exists() else "is not there"
        except OSError as error:
            problem = f"cannot be looked at ({error.strerror or error})"
        raise pytest.UsageError(
            f"--against={given}: {problem}; name the Python interpreter of the other environment, "
            "such as /opt/old/bin/python"
        )
    # Not resolved: a virtual environment is found by the path of its link.
    python = os.path.abspath(python)
    folders = list(dict.fromkeys([str(root), str(IMPORT_ROOT)]))
    unchecked = Environment(python, folders, {})
    try:
        answer = subprocess.run(
            [python, "-c", PROGRAM, *folders],
            cwd=str(root),
            env=unchecked.variables(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=CHECK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise pytest.UsageError(f"--against={given}: it does not run: {error}") from None
    lines = answer.stdout.decode(errors="replace").strip().splitlines() or ["it says nothing"]
    try:
        return Environment(python, folders, dict(json.loads(lines[-1])))
    except (ValueError, TypeError):
        raise pytest.UsageError(
            f"--against={given}: it cannot run the suite: {lines[-1]}; install what the suite "
            f"needs there: {python} -m pip install {root}"
        ) from None
