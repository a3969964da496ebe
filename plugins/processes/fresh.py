"""Measure one case again in a fresh process, with the options of this run.

The process has a session of its own, so that Ctrl-C reaches only this run, which then ends it.
Where this run is killed, the kernel ends the process.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, FrozenSet, Iterator, List, Mapping, Optional, Sequence, Tuple

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.devices.lease import INHERIT_VARIABLE
from ipubench.fixtures.machine.processor import allowed_cpus
from ipubench.plugins.command_line.words import arguments_of, measuring_arguments
from ipubench.plugins.processes.other_python import Environment
from ipubench.plugins.record.files import read_lines
from ipubench.plugins.record.host_process import end_with_parent
from ipubench.plugins.record.record import record_of, rounds_of
from ipubench.plugins.run.results import SessionResults, run_key

LAST_LINES = 15
# A fresh process may take this long, and this many times what the first measurement took, because
# it imports and compiles for itself, maybe on a machine that has become busy.
LEAST_SECONDS = 600.0
TIMES_THE_FIRST = 10.0
# Between asking a process to end and killing it.
GRACE_SECONDS = 10.0


#: The CPUs that this run started with.
cpus_key = pytest.StashKey[FrozenSet[int]]()


class FreshError(CaseError):
    """A fresh process did not measure its case; ``why`` is that in one line."""

    def __init__(self, message: str, why: str, elsewhere: bool) -> None:
        super().__init__(message)
        self.why = why
        self.elsewhere = elsewhere


def measure_again(
    config: pytest.Config,
    nodeid: str,
    elsewhere: Optional[Environment] = None,
) -> Dict[str, Any]:
    """Return the benchmark of one fresh process. Raises FreshError when it did not measure.

    The process uses the device that this run holds, so this run must have closed its step. It
    starts with the CPUs that this run started with, not with those it has pinned itself to.
    ``elsewhere`` is the environment that it runs in, where that is not ours.
    """
    cpus = config.stash[cpus_key]
    with tempfile.TemporaryDirectory(prefix="ipubench-fresh-") as folder, running_on(cpus):
        code, output = run_bounded(
            fresh_command(
                config, nodeid, folder, elsewhere.python if elsewhere else sys.executable
            ),
            str(config.invocation_params.dir),
            elsewhere.variables(fresh_environment()) if elsewhere else fresh_environment(),
            most_seconds(config, nodeid),
        )
        results = SessionResults()
        for journal in Path(folder).glob("run-*.jsonl"):
            for line in read_lines(journal):
                results.take(line)
    if nodeid not in results.benchmarks:
        how = f"exit code {code}" if code is not None else "it took too long and was ended"
        lines = [line for line in output.splitlines() if line.strip()]
        raise FreshError(
            f"{nodeid} could not be measured again in a fresh process ({how}); its last lines:\n"
            + "\n".join(lines[-LAST_LINES:]),
            results.reasons.get(nodeid) or (lines[-1].strip() if lines and code else how),
            elsewhere is not None,
        )
    return results.benchmarks[nodeid]


def most_seconds(config: pytest.Config, nodeid: str) -> float:
    """Return how long a fresh process of a case may take, given what its first one took."""
    run = config.stash.get(run_key, None)
    first = run.results.benchmarks.get(nodeid) if run is not None else None
    if first is None:
        return LEAST_SECONDS + TIMES_THE_FIRST * float(config.option.budget)
    record = record_of(first)
    parts = [record[name] for name in ("build_seconds", "compile_seconds", "first_step_seconds")]
    # A command of a benchmarks.yml does more than its rounds.
    parts.append(record.get("spec", {}).get("seconds", 0.0))
    parts += [*rounds_of(first), *record["canary"]["seconds"], *record["rounds"]["dropped_seconds"]]
    return LEAST_SECONDS + TIMES_THE_FIRST * math.fsum([config.option.budget, *parts])


def run_bounded(
    command: Sequence[str], folder: str, environment: Mapping[str, str], seconds: float
) -> Tuple[Optional[int], str]:
    """Run a command; return (exit code, output), with None as the code where it took too long.

    Whatever ends the wait, an interruption included, the command and its process group are gone
    when this returns or raises.
    """
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output = process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        return None, _end(process).decode(errors="replace")
    except BaseException:
        _end(process)
        raise
    return process.returncode, output.decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> bytes:
    """Ask a process to end, kill its group after a while; return its output."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.communicate()[0]


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


def fresh_command(
    config: pytest.Config, nodeid: str, results_dir: str, python: str = sys.executable
) -> List[str]:
    """Return the command that measures one case and records it in ``results_dir``."""
    ini = ["-c", str(config.inipath)] if config.inipath else []
    return [
        python,
        "-m",
        "pytest",
        "-q",
        *_plugin_words(config),
        *ini,
        # Options that the ini file adds, such as --baseline, would judge and measure again in turn.
        "-o",
        "addopts=",
        f"--rootdir={config.rootpath}",
        "--sweep",
        f"--results-dir={results_dir}",
        *measuring_arguments(config),
        *(["--zero-values"] if config.option.zero_values else []),
        *arguments_of(config, nodeid),
    ]


def _plugin_words(config: pytest.Config) -> List[str]:
    """Return ``-p`` words: the plugins that this run was told to take or to leave, and ours."""
    # At its end unraisableexception collects garbage five times, maybe of a framework's graphs. The
    # terminal is what pytest-xdist takes from a worker; a fresh process of a worker needs its own.
    ours = ["no:cacheprovider", "no:unraisableexception"]
    names = [name for name in config.option.plugins if name not in (*ours, "no:terminal")]
    return [word for name in [*ours, *names] for word in ("-p", name)]


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Note the CPUs before the device pins this process.

    In a fresh process: end with the run that started it, however that ends.
    """
    config.stash[cpus_key] = frozenset(allowed_cpus())
    holder = os.environ.get(INHERIT_VARIABLE)
    if holder is None or config.option.instance is not None:
        return
    if holder == str(os.getppid()):
        end_with_parent()
    elif not os.path.exists(f"/proc/{holder}"):
        pytest.exit("the run that started this process is gone", returncode=1)
