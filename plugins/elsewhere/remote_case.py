"""A case of this run in another process: what starts it, how long it may take, what came of it.

Fresh processes, cases apart, profiled cases, the sides of a pair and instances differ in their
place (plugins/elsewhere/place.py), in a few words, and in who directs them. A supervisor
(fixtures/machine/supervisor.py) ends each with all that it has started: after a time limit, on
Ctrl-C, and when the run is killed. The process has a session of its own, so that Ctrl-C reaches
only the run. It uses the device that the run holds (fixtures/devices/lease.py).
"""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Dict, FrozenSet, Iterator, List, Mapping, Optional, Sequence, Union

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
from ipubench.plugins.command_line.own_options import own_arguments
from ipubench.plugins.command_line.words import (
    all_words,
    arguments_of,
    benchmark_arguments,
    measuring_arguments,
)
from ipubench.plugins.elsewhere import only_from
from ipubench.plugins.elsewhere.place import HERE, Place
from ipubench.plugins.record.structs import Benchmark
from ipubench.plugins.run.lines import Damaged, JournalLine, lines_in
from ipubench.plugins.run.results import Recording, SessionResults

#: Lines of a process's output that are looked at; of these the last ones are shown.
MOST_LINES = 200
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
OF_THIS_FOLDER = ("dataset-dir", "gate-policy")
# Between asking a process to end and killing it.
GRACE_SECONDS = 10.0


class FreshError(CaseError):
    """A fresh process did not measure its case; ``why`` is that in one line."""

    def __init__(self, message: str, why: str, elsewhere: bool) -> None:
        super().__init__(message)
        self.why = why
        self.elsewhere = elsewhere


@dataclass(frozen=True)
class RemoteCase:
    """A case that another process runs, with the options of this run."""

    ours: Recording
    nodeid: str
    place: Place = HERE
    #: Words for this process alone.
    words: Sequence[str] = ()
    #: Variables for it alone; None takes one away.
    variables: Mapping[str, Optional[str]] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Return the folder that its process runs in."""
        return self.place.folder(self.ours.config)

    @property
    def most_seconds(self) -> float:
        """Return how long its process may take, given what the first one took."""
        option, first = options_of(self.ours.config), self.ours.results.benchmarks.get(self.nodeid)
        spent = first.record.spent.values() if first is not None else ()
        measuring = math.fsum([option.budget, *spent])
        return LEAST_SECONDS + float(option.wait_for_quiet or 0.0) + TIMES_THE_FIRST * measuring

    @property
    def environment(self) -> Dict[str, str]:
        """Return its process's environment: ours, less what means something else there."""
        found: Dict[str, Optional[str]] = {**child_environment(self.place), **self.variables}
        return {name: value for name, value in found.items() if value is not None}

    def command(self, results: Path, cache: Path, director: str = "") -> List[str]:
        """Return the command of its process, which leaves its journal in the folder ``results``.

        ``cache`` is for pytest's cache: neither this run's, in which --lf looks, nor that of a
        process with other code. ``director`` is the address of the run whose orders the process
        obeys; without one it measures once and ends.
        """
        config, place = self.ours.config, self.place
        root, ini, prefix = place.root(config), place.ini(config), place.prefix
        measuring = measuring_arguments(config, place.options, prefix)
        if place.revision is not None:
            measuring = for_another_folder(measuring, config.invocation_params.dir)
        return [
            *place.pytest_words(),
            "-q",
            *_plugin_words(config),
            *(["-c", str(ini)] if ini is not None else []),
            # Options that the ini file adds, such as --baseline, would judge and measure again.
            "-o",
            "addopts=",
            f"--rootdir={root}",
            f"{prefix}sweep",
            f"{prefix}results-dir={results}",
            *measuring,
            *([f"{prefix}zero-values"] if options_of(config).zero_values else []),
            *benchmark_arguments(config),
            *own_arguments(config, all_words(config)),
            # Without the plugin the setting would be an unknown one.
            *(["-o", f"cache_dir={cache}"] if config.pluginmanager.hasplugin(CACHE) else []),
            f"--import-mode={config.option.importmode}",
            *arguments_of(config, self.nodeid, self.ours.selection.named_files, root),
            *self.words,
            # Nothing is captured then: all output belongs into the log.
            *(["-s", f"{prefix}instance={director}"] if director else []),
        ]

    def run(self, results: Path, seconds: float = math.inf) -> Outcome:
        """Run its process to the end, for at most so many seconds.

        The process starts with the CPUs that this run started with, not with those it has pinned
        itself to. Whatever ends the wait, an interruption included, nothing of it is left.
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
                code = process.exit_code if process.ends_within(seconds) else None
            except CaseError as error:  # this user may have no more processes
                return Outcome(1, [str(error)], [])
            finally:
                process.stop()
            return Outcome(code, process.last_lines(MOST_LINES), lines_in(results))

    def directed(self, name: str, folder: Path) -> Instances:
        """Return its process as one that obeys orders, not started yet; messages call it ``name``.

        What it leaves is in ``folder``, each process's under its name.
        """
        logs = folder / name.replace(" ", "-")
        program = partial(self.command, folder / "results", logs.with_suffix(".cache"))
        return Instances(single_process(name, self.folder, self.environment), program, logs)

    def measured(self, name: str = "") -> Dict[str, Benchmark]:
        """Return by name all that its test measures in one fresh process, with ``name`` among them.

        This run must have closed its own step. Raises FreshError if the test did not pass.
        """
        name = name or self.nodeid
        with scratch.folder("fresh") as folder:
            outcome = self.run(folder, self.most_seconds)
        results, elsewhere = outcome.results, self.place is not HERE
        refused = outcome.code == only_from.USAGE_ERROR and elsewhere
        # One that failed after its measurement may have measured a wrong result.
        passed = results.outcomes.get(name) == "passed"
        if refused or not passed or name not in results.benchmarks:
            raise FreshError(
                f"{name} could not be measured again in a fresh process ({outcome.how}); its last "
                "lines:\n" + "\n".join(outcome.lines[-LAST_LINES:]),
                results.reasons.get(name) or results.damaged.get(name) or outcome.why,
                elsewhere,
            )
        return results.benchmarks


@dataclass(frozen=True)
class Outcome:
    """What came of the process of a case."""

    #: Its exit code; None: it took too long and was ended.
    code: Optional[int]
    #: The last lines of its output.
    lines: List[str]
    journal: Sequence[Union[JournalLine, Damaged]]

    @property
    def results(self) -> SessionResults:
        """Return what it has recorded."""
        return SessionResults.of(self.journal)

    @property
    def how(self) -> str:
        """Return in words how it ended."""
        return "it took too long and was ended" if self.code is None else f"exit code {self.code}"

    @property
    def why(self) -> str:
        """Return in one line why it measured nothing."""
        if not self.lines or not self.code:
            return self.how
        return known_reason(self.lines) or self.lines[-1].strip()


def known_reason(lines: Sequence[str]) -> str:
    """Return in one line why a process measured nothing, if its output shows it; else ''."""
    errors = [line for line in lines if line.startswith("ERROR: ")]
    if any("not found: " in line for line in errors):
        return "there is no such case"
    refused = [line[line.index(REFUSED) :].strip(" !") for line in lines if REFUSED in line]
    unknown = [line.partition("error: ")[2] for line in lines if any(u in line for u in UNKNOWN)]
    return (refused or unknown or errors or [""])[-1]


@contextlib.contextmanager
def running_on(cpus: FrozenSet[int]) -> Iterator[None]:
    """Let this thread, and so the processes it starts, run on ``cpus`` for a while."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def child_environment(place: Place = HERE) -> Dict[str, str]:
    """Return this process's environment, less pytest options that would apply once more."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    return place.variables(lent(with_absolute_folders(kept)))


def for_another_folder(words: Sequence[str], here: Path) -> List[str]:
    """Return the words, given in the folder ``here``, for a process that runs in another one."""
    found = []
    for word in words:
        option, equals, path = word.partition("=")
        ours = equals and option.startswith("--") and option.endswith(OF_THIS_FOLDER)
        found.append(f"{option}={here / user_path(path)}" if ours else word)
    return found


def _plugin_words(config: pytest.Config) -> List[str]:
    """Return ``-p`` words: the plugins that this run was told to take or to leave, and ours."""
    # At its end unraisableexception collects garbage five times, maybe of a framework's graphs. The
    # terminal is what pytest-xdist takes from a worker; a fresh process of a worker needs its own.
    ours = "no:unraisableexception"
    names = [name for name in config.option.plugins if name not in (ours, "no:terminal")]
    return [word for name in [ours, *names] for word in ("-p", name)]
