"""Runs a case of this run in another process: its command, its time limit and its outcome.

The kinds of process (fresh, separate, profiled, one of a pair, instance) differ in their place
(plugins/processes/place.py), in a few arguments, and in whether another run commands them. A
supervisor (fixtures/machine/supervisor.py) ends each, with all that it has started, after a time
limit, on Ctrl-C, and when the run is killed. The process has a separate session, so Ctrl-C reaches
only the run. It uses the device that the run holds (fixtures/devices/lease.py).
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Union

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.data.sources import with_absolute_folders
from ipubench.fixtures.devices import lent
from ipubench.fixtures.instances.controller import Instances
from ipubench.fixtures.instances.plan import single_process
from ipubench.fixtures.machine import scratch
from ipubench.fixtures.machine.files import user_path
from ipubench.fixtures.machine.process import LAST_LINES, TIDY_SECONDS, ServerProcess
from ipubench.fixtures.machine.processor import running_on
from ipubench.fixtures.pytest_fixtures import shared_of
from ipubench.plugins.command_line.arguments import (
    all_arguments,
    arguments_of,
    benchmark_arguments,
    measuring_arguments,
)
from ipubench.plugins.command_line.own_options import own_arguments
from ipubench.plugins.processes import guarded_pytest
from ipubench.plugins.processes.place import THIS_PLACE, Place
from ipubench.plugins.record.structs import Benchmark
from ipubench.plugins.results.lines import Damaged, JournalLine, lines_in
from ipubench.plugins.results.run_results import RunResults
from ipubench.plugins.run.recording import Recording

#: The last lines of a process's output that are searched for a reason.
MOST_LINES = 200
# The prefix of the message about modules of another checkout.
REFUSED = "refused: "
# The name of pytest's cache plugin.
CACHE = "cacheprovider"
# The reason of a process that does not find its case.
NO_SUCH_CASE = "there is no such case"
# pytest's errors about options, or values, that only another revision of the project has.
UNKNOWN = ("error: unrecognized arguments: ", "error: argument -")
# pytest's errors about a file of tests, or a conftest.py, that raises an exception.
NOT_COLLECTED = ("ERROR: found no collectors for ", "Error while loading conftest ")
# A fresh process may take this long plus this many times the first measurement, because it imports
# and compiles, perhaps on a machine that is now busy.
LEAST_SECONDS = 600.0
TIMES_THE_FIRST = 10.0
# Options with a path that is relative to this run's folder, also for other processes.
OF_THIS_FOLDER = ("dataset-dir", "gate-policy")
# Between asking a process to end and killing it.
GRACE_SECONDS = 10.0
# Between two looks at what a process has done so far.
PAUSE_SECONDS = 1.0


class FreshError(CaseError):
    """A fresh process did not measure its case; ``why`` is the reason in one line."""

    def __init__(self, message: str, why: str, elsewhere: bool) -> None:
        super().__init__(message)
        self.why = why
        self.elsewhere = elsewhere


@dataclass(frozen=True)
class RemoteCase:
    """A case that another process runs, with the options of this run."""

    ours: Recording
    nodeid: str
    place: Place = THIS_PLACE
    #: More arguments for its process.
    arguments: Sequence[str] = ()
    #: More variables for its process; None removes one.
    variables: Mapping[str, Optional[str]] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Return the folder that its process runs in."""
        return self.place.folder(self.ours.config)

    @property
    def most_seconds(self) -> float:
        """Return the time limit of its process, based on the first measurement."""
        option, first = options_of(self.ours.config), self.ours.results.benchmarks.get(self.nodeid)
        spent = first.record.spent.values() if first is not None else ()
        measuring = math.fsum([option.budget, *spent])
        return LEAST_SECONDS + float(option.wait_for_quiet or 0.0) + TIMES_THE_FIRST * measuring

    @property
    def environment(self) -> Dict[str, str]:
        """Return the environment variables of its process."""
        found: Dict[str, Optional[str]] = {**child_environment(self.place), **self.variables}
        return {name: value for name, value in found.items() if value is not None}

    def command(self, results: Path, cache: Path, director: str = "") -> List[str]:
        """Return the command of its process, which writes its journal into the folder ``results``.

        ``cache`` is for pytest's cache: --lf reads this run's, which has to stay unchanged.
        ``director`` is the address of a run that commands the process; without one, the process
        measures once and ends.
        """
        config, prefix = self.ours.config, self.place.prefix
        files, root = self.ours.selection.named_files, self.place.root(config)
        return [
            *common_words(self.ours, self.place, cache),
            f"{prefix}sweep",
            f"{prefix}results-dir={results}",
            *arguments_of(config, self.nodeid, files, root),
            *self.arguments,
            # Without capturing, all output goes into the log.
            *(["-s", f"{prefix}instance={director}"] if director else []),
        ]

    def run(
        self,
        results: Path,
        seconds: float = math.inf,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Outcome:
        """Run its process to the end, or end it after ``seconds``; call ``meanwhile`` often.

        The process gets the CPUs that this run started with, before it pinned itself. It always
        ends with all that it has started, also after an interruption.
        """
        with scratch.folder("process") as folder, running_on(self.ours.cpus):
            process = ServerProcess(
                f"a process for {self.nodeid}",
                self.command(results, folder / "cache"),
                folder / "output",
                self.environment,
                GRACE_SECONDS,
                folder=self.folder,
                tidy=TIDY_SECONDS,
            )
            try:
                process.start()
                code = process.exit_code if _ends_within(process, seconds, meanwhile) else None
            except CaseError as error:  # such as the limit on a user's processes
                return Outcome(1, [str(error)], [])
            finally:
                process.stop()
            return Outcome(code, process.last_lines(MOST_LINES), lines_in(results))

    def directed(self, name: str, folder: Path) -> Instances:
        """Return its process as one that takes commands; it is not started yet.

        Messages call it ``name``. Its log and results are in ``folder``.
        """
        logs = folder / name.replace(" ", "-")
        program = partial(self.command, folder / "results", logs.with_suffix(".cache"))
        return Instances(single_process(name, self.folder, self.environment), program, logs)

    def measured(self, name: str = "") -> Dict[str, Benchmark]:
        """Measure its test in one fresh process; return its benchmarks by name.

        This run must have closed its step. Raises FreshError if the test did not pass, or if
        ``name`` was not measured.
        """
        name = name or self.nodeid
        with scratch.folder("fresh") as folder:
            outcome = self.run(folder, self.most_seconds)
        results, elsewhere = outcome.results, self.place is not THIS_PLACE
        refused = outcome.code == guarded_pytest.USAGE_ERROR and elsewhere
        # One that failed after its measurement may have measured a wrong result.
        passed = results.outcomes.get(name) == "passed"
        if refused or not passed or name not in results.benchmarks:
            raise FreshError(
                f"{name} could not be measured again in a fresh process ({outcome.how}); its last "
                "lines:\n" + "\n".join(outcome.lines[-LAST_LINES:]),
                results.reasons.get(name) or results.unreadable.get(name) or outcome.why,
                elsewhere,
            )
        return results.benchmarks


def _ends_within(process: ServerProcess, seconds: float, meanwhile: Callable[[], None]) -> bool:
    deadline = time.monotonic() + seconds
    while not process.ends_within(min(PAUSE_SECONDS, deadline - time.monotonic())):
        if time.monotonic() >= deadline:
            return False
        meanwhile()
    return True


@dataclass(frozen=True)
class Outcome:
    """How the process of a case ended."""

    #: Its exit code; None: the time limit ended it.
    code: Optional[int]
    #: The last lines of its output.
    lines: List[str]
    journal: Sequence[Union[JournalLine, Damaged]]

    @property
    def results(self) -> RunResults:
        """Return its recorded results."""
        return RunResults.of(self.journal)

    @property
    def how(self) -> str:
        """Return how it ended, for a message."""
        return "it took too long and was ended" if self.code is None else f"exit code {self.code}"

    @property
    def why(self) -> str:
        """Return why it measured nothing, in one line."""
        if not self.lines or not self.code:
            return self.how
        return known_reason(self.lines) or self.lines[-1].strip()


def common_words(ours: Recording, place: Place, cache: Path) -> List[str]:
    """Return the command of a process of this run in a place, up to the tests that it runs.

    ``cache``: see :meth:`RemoteCase.command`.
    """
    config, ini = ours.config, place.ini(ours.config)
    energy = shared_of(config).energy
    measuring = measuring_arguments(config, place.options, place.prefix)
    if place.revision is not None:
        measuring = for_another_folder(measuring, config.invocation_params.dir)
    return [
        *place.pytest_command(),
        "-q",
        *_plugin_arguments(config),
        *(["-c", str(ini)] if ini is not None else []),
        # Options that the ini file adds, such as --baseline, would judge and measure again.
        "-o",
        "addopts=",
        f"--rootdir={place.root(config)}",
        *measuring,
        *([f"{place.prefix}energy"] if energy and "energy" in place.options else []),
        *([f"{place.prefix}zero-values"] if options_of(config).zero_values else []),
        *benchmark_arguments(config),
        *own_arguments(config, all_arguments(config)),
        # Without the plugin, pytest does not have the setting.
        *(["-o", f"cache_dir={cache}"] if config.pluginmanager.hasplugin(CACHE) else []),
        f"--import-mode={config.option.importmode}",
        # A test that is expected to fail has to be measured like any other.
        *(["--runxfail"] if config.pluginmanager.hasplugin("skipping") else []),
    ]


def known_reason(lines: Sequence[str]) -> str:
    """Return why a process measured nothing, in one line, if its output shows it; else ''."""
    errors = [line for line in lines if line.startswith("ERROR: ")]
    if any("not found: " in line for line in errors):
        return NO_SUCH_CASE
    raised = [line[1:].strip() for line in lines if line.startswith("E  ")]
    if raised and any(one in line for line in lines for one in NOT_COLLECTED):
        return f"its tests cannot be collected: {raised[-1]}"
    refused = [line[line.index(REFUSED) :].strip(" !") for line in lines if REFUSED in line]
    unknown = [line.partition("error: ")[2] for line in lines if any(u in line for u in UNKNOWN)]
    return (refused or unknown or errors or [""])[-1]


def why_not_there(why: str, place: Place) -> str:
    """Return the verdict's reason for a case that failed in another environment.

    It names what to do if a package is missing there.
    """
    remedy = f"; {place.remedy}" if "No module named" in why else ""
    return f"it does not run there: {why}{remedy}"


def more_tests(ours: Recording, place: Place, nodeids: Sequence[str]) -> List[str]:
    """Return the arguments with which a process also runs these tests."""
    files, root = ours.selection.named_files, place.root(ours.config)
    return [word for name in nodeids for word in arguments_of(ours.config, name, files, root)]


def tests_not_found(
    ours: Recording, place: Place, nodeids: Sequence[str], lines: Sequence[str]
) -> List[str]:
    """Return the tests that a process did not find; pytest then runs none.

    ``lines``: the last lines of its output.
    """
    missing = [line.strip() for line in lines if "not found: " in line]
    files, root = ours.selection.named_files, place.root(ours.config)
    # Of a function that is missing, pytest does not print the parameters.
    return [
        name
        for name in nodeids
        for word in arguments_of(ours.config, name, files, root)[-1:]
        if any(
            line.endswith((f"not found: {word}", f"not found: {word.partition('[')[0]}"))
            for line in missing
        )
    ]


def child_environment(place: Place = THIS_PLACE) -> Dict[str, str]:
    """Return the environment for another process, without options that would apply twice."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    return place.variables(lent(with_absolute_folders(kept)))


def for_another_folder(arguments: Sequence[str], here: Path) -> List[str]:
    """Return arguments with paths relative to ``here``, for a process in another folder."""
    found = []
    for argument in arguments:
        option, equals, path = argument.partition("=")
        relative = equals and option.startswith("--") and option.endswith(OF_THIS_FOLDER)
        found.append(f"{option}={here / user_path(path)}" if relative else argument)
    return found


def _plugin_arguments(config: pytest.Config) -> List[str]:
    """Return the ``-p`` options of this run, and ours."""
    # unraisableexception collects garbage five times at the end, which is slow with large graphs.
    # pytest-xdist removes a worker's terminal; a fresh process of a worker needs one.
    ours = "no:unraisableexception"
    names = [name for name in config.option.plugins if name not in (ours, "no:terminal")]
    return [argument for name in [ours, *names] for argument in ("-p", name)]
