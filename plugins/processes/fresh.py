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
import time
from pathlib import Path
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
)

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.data.sources import for_other_folders
from ipubench.fixtures.devices import INHERIT_VARIABLE
from ipubench.fixtures.machine import scratch
from ipubench.fixtures.machine.files import user_path
from ipubench.fixtures.machine.processor import allowed_cpus
from ipubench.plugins.command_line.own_options import own_arguments
from ipubench.plugins.command_line.words import (
    all_words,
    arguments_of,
    benchmark_arguments,
    measuring_arguments,
)
from ipubench.plugins.processes import only_from
from ipubench.plugins.processes.other_python import Environment
from ipubench.plugins.record.files import lines_in
from ipubench.plugins.record.host_process import end_with_parent
from ipubench.plugins.record.record import spent_of
from ipubench.plugins.run.results import SessionResults, run_key

LAST_LINES = 15
# How a message begins of a process that has met modules of another checkout.
REFUSED = "refused: "
# pytest's plugin of its cache.
CACHE = "cacheprovider"
# What pytest says of options, or values, that the project has in another revision only.
UNKNOWN = ("error: unrecognized arguments: ", "error: argument -")
# A fresh process may take this long, and this many times what the first measurement took, because
# it imports and compiles for itself, maybe on a machine that has become busy.
LEAST_SECONDS = 600.0
TIMES_THE_FIRST = 10.0
# Options with a path that means the same file in whatever folder another process runs.
OF_THIS_FOLDER = ("--dataset-dir", "--gate-policy")
# Between asking a process to end and killing it.
GRACE_SECONDS = 10.0
# After its end helpers of Python and PyTorch remove the shared memory that it has left.
TIDY_SECONDS, LOOK_SECONDS = 1.0, 0.01


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
    name: str = "",
) -> Dict[str, Any]:
    """Return the benchmark of one fresh process. Raises FreshError where its test did not pass.

    ``name``: of one of the several results of that test.
    """
    name = name or nodeid
    return all_measured_again(config, nodeid, elsewhere, name)[name]


def all_measured_again(
    config: pytest.Config, nodeid: str, elsewhere: Optional[Environment], name: str
) -> Dict[str, Dict[str, Any]]:
    """Return by name all that the test measures in one fresh process, with ``name`` among them.

    The process uses the device that this run holds, so this run must have closed its step.
    ``elsewhere`` is the environment that it runs in, where that is not ours.
    """
    with scratch.folder("fresh") as folder:
        code, output = run_case(
            config, nodeid, folder, most_seconds(config, nodeid), elsewhere=elsewhere
        )
        results = SessionResults.of(lines_in(folder))
    refused = code == only_from.USAGE_ERROR and elsewhere is not None
    # One that failed after its measurement may have measured a wrong result.
    passed = results.outcomes.get(name) == "passed"
    if refused or not passed or name not in results.benchmarks:
        how = f"exit code {code}" if code is not None else "it took too long and was ended"
        lines = [line for line in output.splitlines() if line.strip()]
        raise FreshError(
            f"{name} could not be measured again in a fresh process ({how}); its last lines:\n"
            + "\n".join(lines[-LAST_LINES:]),
            results.reasons.get(name)
            or (known_reason(lines) or lines[-1].strip() if lines and code else how),
            elsewhere is not None,
        )
    return results.benchmarks


def known_reason(lines: Sequence[str]) -> str:
    """Return in one line why a process measured nothing, where its output shows it; else ''."""
    errors = [line for line in lines if line.startswith("ERROR: ")]
    if any("not found: " in line for line in errors):
        return "there is no such case"
    refused = [line[line.index(REFUSED) :].strip(" !") for line in lines if REFUSED in line]
    unknown = [line.partition("error: ")[2] for line in lines if any(u in line for u in UNKNOWN)]
    return (refused or unknown or errors or [""])[-1]


def folder_of(config: pytest.Config, elsewhere: Optional[Environment]) -> Path:
    """Return the folder that a process of a case runs in: on both sides the same of the project.

    Python looks there first for the modules of programs that the process starts, and tests open
    files there. The project's folder stands for one that the other revision does not have.
    """
    here = Path(config.invocation_params.dir)
    if elsewhere is None or elsewhere.revision is None:
        return here
    there = elsewhere.place(here, config.rootpath)
    return there if there != here and there.is_dir() else elsewhere.revision.root


def most_seconds(config: pytest.Config, nodeid: str) -> float:
    """Return how long a fresh process of a case may take, given what its first one took."""
    run = config.stash.get(run_key, None)
    first = run.results.benchmarks.get(nodeid) if run is not None else None
    wait = float(config.option.wait_for_quiet or 0.0)
    if first is None:
        return LEAST_SECONDS + wait + TIMES_THE_FIRST * float(config.option.budget)
    measuring = math.fsum([config.option.budget, *spent_of(first).values()])
    return LEAST_SECONDS + wait + TIMES_THE_FIRST * measuring


def run_case(
    config: pytest.Config,
    nodeid: str,
    results_dir: Path,
    seconds: Optional[float],
    words: Sequence[str] = (),
    elsewhere: Optional[Environment] = None,
    environment: Optional[Mapping[str, str]] = None,
) -> Tuple[Optional[int], str]:
    """Run a case in a process of its own, which records it in ``results_dir``.

    Returns as :func:`run_bounded`. The process starts with the CPUs that this run started with, not
    with those it has pinned itself to. ``words`` are added to its command line.
    """
    with scratch.folder("cache") as cache, running_on(config.stash[cpus_key]):
        return run_bounded(
            [*fresh_command(config, nodeid, str(results_dir), cache, elsewhere), *words],
            str(folder_of(config, elsewhere)),
            fresh_environment(elsewhere) if environment is None else environment,
            seconds,
        )


def run_bounded(
    command: Sequence[str],
    folder: str,
    environment: Mapping[str, str],
    seconds: Optional[float],
    started: Callable[[subprocess.Popen[bytes]], None] = lambda process: None,
) -> Tuple[Optional[int], str]:
    """Run a command; return (exit code, output), with None as the code where it took too long.

    ``seconds`` None: it may take as long as it needs. ``started`` is given the process, which
    another thread may end.

    Whatever ends the wait, an interruption included, the command and its process group are gone
    when this returns or raises. Raises ScratchError.
    """
    # No pipe, whose end would wait for a server that a case has left behind.
    with scratch.nameless_file() as output:
        try:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:  # this user may have no more processes, or the folder is gone
            return 1, f"no process can be started: {error.strerror}"
        started(process)
        code: Optional[int] = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(seconds)
        finally:
            _end(process)
        # A server in a group of its own may still write, where the position that we share is.
        said = os.pread(output.fileno(), os.fstat(output.fileno()).st_size, 0)
        return code, said.decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end, unless it has; kill its group after a while.

    What a test has left running would take time from the next process.
    """
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)
    deadline = time.monotonic() + TIDY_SECONDS
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left, or a stranger
        while process.poll() is not None and time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(LOOK_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def running_on(cpus: FrozenSet[int]) -> Iterator[None]:
    """Let this thread, and so the processes it starts, run on ``cpus`` for a while."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def fresh_environment(elsewhere: Optional[Environment] = None) -> Dict[str, str]:
    """Return this process's environment, less pytest options that would apply once more."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    ours = {**for_other_folders(kept), INHERIT_VARIABLE: str(os.getpid())}
    return elsewhere.variables(ours) if elsewhere is not None else ours


def fresh_command(
    config: pytest.Config,
    nodeid: str,
    results_dir: str,
    cache_dir: Path,
    elsewhere: Optional[Environment] = None,
) -> List[str]:
    """Return the command that measures one case and records it in ``results_dir``.

    ``cache_dir`` is for pytest's cache, which must be none of this run's, where --lf looks, nor of
    a process with other code.
    """
    root, ini, measuring = config.rootpath, config.inipath, measuring_arguments(config)
    if elsewhere is not None and elsewhere.revision is not None:
        ini = elsewhere.place(ini, root) if ini is not None else None
        # Its settings may be in another file, which pytest finds.
        ini = ini if ini is not None and ini.is_file() else None
        root = elsewhere.revision.root
        measuring = measuring_arguments(config, elsewhere.options)
        measuring = for_another_folder(measuring, config.invocation_params.dir)
    return [
        *(elsewhere.pytest_words() if elsewhere else [sys.executable, "-m", "pytest"]),
        "-q",
        *_plugin_words(config),
        *(["-c", str(ini)] if ini is not None else []),
        # Options that the ini file adds, such as --baseline, would judge and measure again in turn.
        "-o",
        "addopts=",
        f"--rootdir={root}",
        "--sweep",
        f"--results-dir={results_dir}",
        *measuring,
        *(["--zero-values"] if config.option.zero_values else []),
        *benchmark_arguments(config),
        *own_arguments(config, all_words(config)),
        # Without the plugin the setting would be an unknown one.
        *(["-o", f"cache_dir={cache_dir}"] if config.pluginmanager.hasplugin(CACHE) else []),
        f"--import-mode={config.option.importmode}",
        *arguments_of(config, nodeid, root),
    ]


def for_another_folder(words: Sequence[str], here: Path) -> List[str]:
    """Return the words, given in the folder ``here``, for a process that runs in another one."""
    found = []
    for word in words:
        option, equals, path = word.partition("=")
        ours = equals and option in OF_THIS_FOLDER
        found.append(f"{option}={here / user_path(path)}" if ours else word)
    return found


def _plugin_words(config: pytest.Config) -> List[str]:
    """Return ``-p`` words: the plugins that this run was told to take or to leave, and ours."""
    # At its end unraisableexception collects garbage five times, maybe of a framework's graphs. The
    # terminal is what pytest-xdist takes from a worker; a fresh process of a worker needs its own.
    ours = "no:unraisableexception"
    names = [name for name in config.option.plugins if name not in (ours, "no:terminal")]
    return [word for name in [ours, *names] for word in ("-p", name)]


def follow_parent(config: pytest.Config) -> None:
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
