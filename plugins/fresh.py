"""Measure one case again in a fresh process, with the options of this run."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, FrozenSet, Iterator, List

import pytest

from fixtures.devices.lease import INHERIT_VARIABLE
from fixtures.errors import CaseError
from plugins.journal import Results, read_lines
from plugins.options import measuring_arguments

LAST_LINES = 15


def measure_again(config: pytest.Config, nodeid: str, cpus: FrozenSet[int]) -> Dict[str, Any]:
    """Return the benchmark of one fresh process. Raises CaseError when it did not measure.

    The process uses the device that this run holds, so this run must have closed its step. It
    starts with the ``cpus`` that this run started with, not with those it has pinned itself to.
    """
    with tempfile.TemporaryDirectory(prefix="ipubench-fresh-") as folder, running_on(cpus):
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


@contextlib.contextmanager
def running_on(cpus: FrozenSet[int]) -> Iterator[None]:
    """Let this thread, and so the processes it starts, run on ``cpus`` for a while."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def fresh_environment() -> Dict[str, str]:
    """Return this process's environment, less pytest options that would apply once more."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    return {**kept, INHERIT_VARIABLE: str(os.getpid())}


def fresh_command(config: pytest.Config, nodeid: str, results_dir: str) -> List[str]:
    """Return the command that measures one case and records it in ``results_dir``."""
    ini = ["-c", str(config.inipath)] if config.inipath else []
    return [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *ini,
        # Options that the ini file adds, such as --baseline, would judge and measure again in turn.
        "-o",
        "addopts=",
        f"--rootdir={config.rootpath}",
        "--sweep",
        f"--results-dir={results_dir}",
        *measuring_arguments(config),
        str(config.rootpath / nodeid),
    ]
