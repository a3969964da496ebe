"""Helpers for tests of several processes."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any, Dict, List

from tests.support.harness import ROOT, Outcome, Project, SuiteServer, run_pytest
from tests.support.process_starter import small_program

WORDS = ("bench_together.py", "--device=cpu")


def with_instances(project: Project, launcher: str = "processes") -> Project:
    """Add the case of several processes, with our launcher and stand-ins for mpirun and poprun."""
    shutil.copy(
        ROOT / "tests" / "support" / "instances_cases.py", project.folder / "bench_together.py"
    )
    project.environment.update(
        launchers_in(project.folder, launcher), TOGETHER=str(project.folder), COLUMNS="120"
    )
    return project


def launchers_in(parent: Path, launcher: str = "processes") -> Dict[str, str]:
    """Create stand-ins for mpirun and poprun; return the environment with them.

    ``launcher`` starts instances on a host.
    """
    python = small_program(SuiteServer.address())
    folder = parent / "bin"
    folder.mkdir()
    program = ROOT / "tests" / "doubles" / "mpirun.py"
    for name in ("mpirun", "poprun"):
        words = shlex.join([*python, str(program)])
        (folder / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (folder / name).chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "IPUBENCH_LAUNCHER": launcher}


def run(project: Project, *more: str) -> Outcome:
    """Run the case of several processes."""
    return run_pytest(project.folder, project.environment, *WORDS, *more)


def record_of(project: Project) -> Dict[str, Any]:
    """Return the only record of the latest run."""
    (record,) = project.records().values()
    return record


def notes_of(project: Project) -> List[Dict[str, Any]]:
    """Return each instance's notes by its number."""
    paths = sorted(project.folder.glob("[0-9].json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]
