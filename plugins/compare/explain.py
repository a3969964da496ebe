"""Implements `--profile-on-regression`: profiles a regressed case to explain it.

Each side is profiled in a fresh process: this one, and with ``--against`` the other one. A stored
baseline cannot run; it has operations only if it was saved with ``--keep-operations``. The report
shows the operations whose share of the time grew.
"""

from __future__ import annotations

import shutil
from typing import Tuple

import pytest
from msgspec.structs import replace

from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.machine import scratch
from ipubench.fixtures.machine.files import user_path
from ipubench.plugins.command_line.arguments import folder_above, only_lists
from ipubench.plugins.compare import counting
from ipubench.plugins.compare.operations import Operations, grown, operations_in
from ipubench.plugins.compare.policy import has_gate
from ipubench.plugins.elsewhere.place import HERE, Place
from ipubench.plugins.elsewhere.remote_case import RemoteCase, known_reason
from ipubench.plugins.measure.base import state_of
from ipubench.plugins.record.structs import Profile
from ipubench.plugins.record.verdict import REGRESSED
from ipubench.plugins.run.lines import ProfileLine
from ipubench.plugins.selection.selected import case_of
from ipubench.plugins.state import Run

#: Below the results folder, with a subfolder for each run.
FOLDER = "profiles"
NO_OPERATIONS = "its profile in {} has no readable operations"
NOT_KEPT = "the baseline keeps no operations; measure it with --keep-operations"


def refuse_without_gate(config: pytest.Config) -> None:
    """Refuse the option in a run without a gate, which finds no regression."""
    if options_of(config).profile_on_regression and not only_lists(config) and not has_gate(config):
        raise pytest.UsageError(
            "--profile-on-regression profiles cases that a gate finds slower: add --gate=2% or "
            "--gate-policy=PATH"
        )


def keep_release(item: pytest.Item) -> None:
    """Remember how to release the case's shared resources, which its fresh process needs."""
    state = state_of(item)
    if state.measured and options_of(item.config).keep_operations:
        state.release = state.measured[0].release


def explain_regression(run: Run, item: pytest.Item) -> None:
    """Profile a regressed case while the run still holds its device."""
    case, state = case_of(item), state_of(item)
    if case is None or item.nodeid not in run.results.benchmarks:
        return
    option = options_of(item.config)
    kind = run.results.kind(item.nodeid)
    if not (option.keep_operations or (option.profile_on_regression and kind == REGRESSED)):
        return
    if state.release is not None:
        state.release()
        state.release = None  # it holds the step
    both = option.profile_on_regression and kind == REGRESSED
    functions = counting.functions_that_grew(run, item.nodeid) if both else []
    if both and counting.is_counted_alone(run):
        notes = [] if functions else ["the functions that grew are not known"]
        run.add(ProfileLine(item.nodeid, Profile(functions=functions, notes=notes)))
        return
    profiler = Profiler(item, case, run)
    with run.bounds.lifted():
        profile = replace(profiler.explain(both), functions=functions)
    run.add(ProfileLine(item.nodeid, profile))


class Profiler:
    """Profiles one case in fresh processes."""

    def __init__(self, item: pytest.Item, case: Case, run: Run) -> None:
        self._config = item.config
        self._nodeid = item.nodeid
        self._case = case
        self._run = run
        results = user_path(options_of(item.config).results_dir)
        self.folder = (results / FOLDER / run.path.stem).resolve()

    def explain(self, both: bool) -> Profile:
        """Return the operations here and, with ``both``, those before and the growth."""
        here, problem = self._profile("here")
        notes = [f"here: {problem}"] if problem else []
        there: Operations = ()
        if both:
            there, problem = self._before()
            notes += [f"before: {problem}"] if problem else []
        more = grown(there, here) if there and here else ()
        return Profile(str(self.folder), here, there, more, notes)

    def _before(self) -> Tuple[Operations, str]:
        """Return the operations before, or why they are unknown."""
        against, baseline = self._run.against, self._run.baseline
        if against is not None:
            return self._profile("there", against.environment)
        benchmark = self._run.results.benchmarks[self._nodeid]
        entry = baseline.find(benchmark) if baseline is not None else None
        kept = entry.record.operations if entry is not None else ()
        return kept, "" if kept else NOT_KEPT

    def _profile(self, where: str, place: Place = HERE) -> Tuple[Operations, str]:
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
