"""`--profile-on-regression`: a regressed case is run once more under the profiler, and explained.

Each side that can run is profiled in a fresh process: this one, and with ``--against`` the other
one. A stored baseline cannot run: its operations are known where it was measured with
``--keep-operations``. The report shows the operations whose share of the time grew.
"""

from __future__ import annotations

import shutil
from typing import Any, Callable, Dict, Optional, Tuple

import pytest

from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.machine import scratch
from ipubench.fixtures.machine.files import user_path
from ipubench.plugins.command_line.words import folder_above, only_lists
from ipubench.plugins.compare import counting
from ipubench.plugins.compare.against_plugin import against_key
from ipubench.plugins.compare.baseline_plugin import comparison_key
from ipubench.plugins.compare.operations import Operations, grown, operations_in
from ipubench.plugins.compare.policy import has_gate
from ipubench.plugins.measure.base import measured_key
from ipubench.plugins.processes.fresh import known_reason, most_seconds, run_case
from ipubench.plugins.processes.other_python import Environment
from ipubench.plugins.record.record import record_of
from ipubench.plugins.record.verdict import REGRESSED
from ipubench.plugins.run.bounds import unbounded
from ipubench.plugins.run.progress import progress_key
from ipubench.plugins.run.results import Run, run_key
from ipubench.plugins.selection.selected import case_of

#: Below the results folder; each run has one of its own in it.
FOLDER = "profiles"
HERE, THERE = "here", "there"
NO_OPERATIONS = "no operations can be read from its profile in {}"
NOT_KEPT = "the baseline keeps no operations; measure it with --keep-operations"

release_key = pytest.StashKey[Callable[[], None]]()


def refuse_without_gate(config: pytest.Config) -> None:
    """Refuse what could explain nothing."""
    if config.option.profile_on_regression and not only_lists(config) and not has_gate(config):
        raise pytest.UsageError(
            "--profile-on-regression profiles cases that a gate finds slower: add --gate=2% or "
            "--gate-policy=PATH"
        )


# Registered before plugins/compare/judge_plugin.py, which takes what was measured out of the stash.
def keep_release(item: pytest.Item) -> None:
    """Note how to let go of what a case shares, which its fresh process will need."""
    measured = item.stash.get(measured_key, [])
    if measured and item.config.option.keep_operations:
        item.stash[release_key] = measured[0].release


def explain_regression(item: pytest.Item) -> None:
    """Explain a case that has regressed, while the run still holds its device."""
    run, case = item.config.stash.get(run_key, None), case_of(item)
    if run is None or case is None or item.nodeid not in run.results.benchmarks:
        return
    option = item.config.option
    kind = run.results.verdicts.get(item.nodeid, {}).get("kind")
    if not (option.keep_operations or (option.profile_on_regression and kind == REGRESSED)):
        return
    if release_key in item.stash:
        item.stash[release_key]()
        del item.stash[release_key]  # it holds the step
    both = option.profile_on_regression and kind == REGRESSED
    grown_functions = counting.functions_that_grew(item) if both else []
    if counting.is_counted_alone(item):
        notes = [] if grown_functions else ["nobody counted the functions of the other side"]
        profile = {"functions": grown_functions, "notes": notes}
        run.add({"type": "profile", "case": item.nodeid, "profile": profile})
        return
    profiler = Profiler(item, case, run, item.config.stash[progress_key].phase)
    with unbounded(item.config):
        profile = profiler.explain(both)
    if grown_functions:
        profile["functions"] = grown_functions
    run.add({"type": "profile", "case": item.nodeid, "profile": profile})


class Profiler:
    """Profiles one case in fresh processes."""

    def __init__(
        self, item: pytest.Item, case: Case, run: Run, progress: Callable[[str], None]
    ) -> None:
        self._config = item.config
        self._nodeid = item.nodeid
        self._case = case
        self._run = run
        self._progress = progress
        results = user_path(item.config.option.results_dir)
        self.folder = (results / FOLDER / run.journal.path.stem).resolve()

    def explain(self, both: bool) -> Dict[str, Any]:
        """Return where the time went here, and with ``both`` also there and what grew."""
        here, problem = self._profile(HERE)
        found: Dict[str, Any] = {"folder": str(self.folder), "here": here}
        notes = [f"here: {problem}"] if problem else []
        if both:
            there, problem = self._before()
            found.update(there=there, grown=grown(there, here) if there and here else [])
            notes += [f"before: {problem}"] if problem else []
        return {**found, "notes": notes}

    def _before(self) -> Tuple[Operations, str]:
        """Return where the time went before, or why that is not known."""
        against = self._config.stash.get(against_key, None)
        if against is not None:
            return self._profile(THERE, against.environment)
        comparison = self._config.stash.get(comparison_key, None)
        benchmark = self._run.results.benchmarks[self._nodeid]
        entry = comparison.find(benchmark) if comparison is not None else None
        kept = record_of(entry).get("operations", []) if entry is not None else []
        return kept, "" if kept else NOT_KEPT

    def _profile(
        self, where: str, elsewhere: Optional[Environment] = None
    ) -> Tuple[Operations, str]:
        """Return the operations of one side, or why they are not known."""
        self._progress(f"profiling {where}")
        config = self._config
        root = folder_above(config, str(self.folder / where), self._nodeid)
        traces = root / self._case.id
        # A resumed run may have left some.
        shutil.rmtree(traces, ignore_errors=True)
        most = most_seconds(config, self._nodeid)
        with scratch.folder("profile") as results:
            words = [f"--profile={root}"]
            code, output = run_case(config, self._nodeid, results, most, words, elsewhere)
        if code != 0:
            lines = [line for line in output.splitlines() if line.strip()]
            how = "it took too long" if code is None else f"exit code {code}"
            return [], f"it could not be profiled ({known_reason(lines) or how})"
        found = operations_in(traces)
        return found, "" if found else NO_OPERATIONS.format(traces)
