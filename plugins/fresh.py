"""Measure one case again in a fresh process, with the options of this run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List

import pytest

from fixtures.devices.lease import INHERIT_VARIABLE
from fixtures.errors import CaseError
from plugins.journal import Results, read_lines
from plugins.options import measuring_arguments

LAST_LINES = 15


def measure_again(config: pytest.Config, nodeid: str) -> Dict[str, Any]:
    """Return the benchmark of one fresh process. Raises CaseError when it did not measure.

    The process uses the device that this run holds, so this run must have closed its step.
    """
    with tempfile.TemporaryDirectory(prefix="ipubench-fresh-") as folder:
        command = fresh_command(config, nodeid, folder)
        answer = subprocess.run(
            command,
            cwd=str(config.invocation_params.dir),
            env=fresh_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        results = Results()
        for journal in Path(folder).glob("run-*.jsonl"):
            for line in read_lines(journal):
                results.take(line)
    if nodeid not in results.benchmarks:
        output = answer.stdout.decode(errors="replace").splitlines()[-LAST_LINES:]
        raise CaseError(
            f"{nodeid} could not be measured again in a fresh process (exit code "
            f"{answer.returncode}); its last lines:\n" + "\n".join(output)
        )
    return results.benchmarks[nodeid]


def fresh_environment() -> Dict[str, str]:
    """Return this process's environment, less pytest options that would apply once more."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    return {**kept, INHERIT_VARIABLE: str(os.getpid())}


def fresh_command(config: pytest.Config, nodeid: str, results_dir: str) -> List[str]:
    """Return the command that measures one case and records it in ``results_dir``."""
    ini = [f"--config-file={config.inipath}"] if config.inipath else []
    return [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *ini,
        f"--rootdir={config.rootpath}",
        "--sweep",
        f"--results-dir={results_dir}",
        *measuring_arguments(config),
        str(config.rootpath / nodeid),
    ]
