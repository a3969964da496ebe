"""Implements `--profile-on-regression`: profiles a regressed case to explain it.

Each side is profiled in a fresh process: this one, and with ``--against`` the other one. Then the
report shows the operations whose share of the time grew. A stored baseline cannot run.
"""

from __future__ import annotations

import shutil
from typing import Tuple

import pytest
from msgspec.structs import replace

from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.machine import scratch
from ipubench.plugins.command_line.arguments import folder_above
from ipubench.plugins.compare import counting
from ipubench.plugins.compare.operations import Operations, grown, operations_in
from ipubench.plugins.compare.policy import has_gate
from ipubench.plugins.processes.place import THIS_PLACE, Place
from ipubench.plugins.processes.remote_case import RemoteCase, known_reason
from ipubench.plugins.record.structs import Profile
from ipubench.plugins.record.verdict import REGRESSED
from ipubench.plugins.results.lines import ProfileLine
from ipubench.plugins.selection.selected import case_of
from ipubench.plugins.state import Run

#: Below the results folder, with a subfolder for each run.
FOLDER = "profiles"
NO_OPERATIONS = "its profile in {} has no readable operations"
NOT_STORED = "a stored baseline cannot be profiled; --against=git:REV can"


def refuse_without_gate(run: Run) -> None:
    """Refuse the option in a run without a gate, which finds no regression."""
    wanted = options_of(run.config).profile_on_regression and run.role.measures
    if wanted and not has_gate(run.config):
        raise pytest.UsageError(
            "--profile-on-regression profiles cases that a gate finds slower: add --gate=2% or "
            "--gate-policy=PATH"
        )


def explain_regression(run: Run, item: pytest.Item) -> None:
    """Profile a regressed case while the run still holds its device."""
    case, results = case_of(item), run.results
    if case is None or item.nodeid not in results.benchmarks:
        return
    if not options_of(item.config).profile_on_regression or results.kind(item.nodeid) != REGRESSED:
        return
    functions = counting.functions_that_grew(run, item.nodeid)
    if counting.is_counted_alone(run):
        notes = [] if functions else ["the functions that grew are not known"]
        run.add(ProfileLine(item.nodeid, Profile(functions=functions, notes=notes)))
        return
    profiler = Profiler(item, case, run)
    with run.bounds.lifted():
        profile = replace(profiler.explain(), functions=functions)
    run.add(ProfileLine(item.nodeid, profile))


class Profiler:
    """Profiles one case in fresh processes."""

    def __init__(self, item: pytest.Item, case: Case, run: Run) -> None:
        self._config = item.config
        self._nodeid = item.nodeid
        self._case = case
        self._run = run
        self.folder = (run.results_dir / FOLDER / run.path.stem).resolve()

    def explain(self) -> Profile:
        """Return the operations here, those before if they can be profiled, and the growth."""
        here, problem = self._profile("here")
        notes = [f"here: {problem}"] if problem else []
        there: Operations = ()
        against = self._run.against
        if against is not None:
            there, problem = self._profile("there", against.environment)
        else:
            problem = NOT_STORED
        notes += [f"before: {problem}"] if problem else []
        more = grown(there, here) if there and here else ()
        return Profile(str(self.folder), here, there, more, notes)

    def _profile(self, where: str, place: Place = THIS_PLACE) -> Tuple[Operations, str]:
        """Return the operations of one side, or why they are unknown."""
        self._run.progress.phase(f"profiling {where}")
        config = self._config
        own = self._run.selection.folders.get(self._nodeid, "")
        root = folder_above(config, str(self.folder / where), own)
        traces = root / self._case.id
        # An interrupted run may have left traces.
        shutil.rmtree(traces, ignore_errors=True)
        case = RemoteCase(self._run, self._nodeid, place, [f"{place.prefix}profile={root}"])
        with scratch.folder("profile") as results:
            outcome = case.run(results, case.most_seconds)
        if outcome.code != 0:
            why = known_reason(outcome.lines) or outcome.how
            return [], f"it could not be profiled ({why})"
        found = operations_in(traces)
        return found, "" if found else NO_OPERATIONS.format(traces)
