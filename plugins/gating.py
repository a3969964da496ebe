"""`--baseline`, `--gate`, `--baseline-save`: compare each case in its own test.

Exit codes: 1 where a case regressed, failed, or is missing from the run although the baseline has
it; 6 where a gate was asked for and nothing could be compared.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Set

import pytest

from plugins import baseline, gate, pedantic
from plugins.fresh import measure_again
from plugins.gate import Verdict
from plugins.journal import Run, run_key
from plugins.record import record_of
from plugins.selection import selection_key

EXIT_NOTHING_COMPARED = 6


@dataclass
class Comparison:
    """The baseline of this run and the rule that it is compared by."""

    config: pytest.Config
    path: Path
    stored: Dict[str, Dict[str, Any]]
    threshold: Optional[float]
    cpus: FrozenSet[int]  # of this process before it pinned itself

    def judge(self, nodeid: str, now: Dict[str, Any], progress: Callable[[str], None]) -> Verdict:
        """Compare a measured case; a suspect is measured again in fresh processes first."""
        before = self.stored.get(nodeid)
        if before is None:
            return Verdict(gate.NEW)
        # Without --gate the change is shown and judged by nothing.
        threshold = self.threshold if self.threshold is not None else float("inf")
        verdict = gate.compare(now, before, threshold)
        if verdict.kind != gate.REGRESSED:
            return verdict
        fresh = []
        for number in range(1, gate.FRESH_PROCESSES + 1):
            progress(f"looks slower, measuring in fresh process {number}/{gate.FRESH_PROCESSES}")
            fresh.append(measure_again(self.config, nodeid, self.cpus))
            self.config.stash[run_key].add({"type": "fresh", "benchmark": fresh[-1]})
        return gate.compare(now, before, threshold, fresh)

    def missing(self, collected: Set[str]) -> List[str]:
        """Return stored cases that no longer exist, given all that were collected before ``-k``.

        A file that was not collected says nothing of its cases.
        """
        files = {nodeid.split("::")[0] for nodeid in collected}
        return [
            nodeid
            for nodeid in self.stored
            if nodeid not in collected and self._file_was_collected(nodeid, files)
        ]

    def _file_was_collected(self, nodeid: str, files: Set[str]) -> bool:
        name = nodeid.split("::")[0]
        return name in files or not (self.config.rootpath / name).exists()


comparison_key = pytest.StashKey[Comparison]()


def pytest_configure(config: pytest.Config) -> None:
    """Read the baseline before anything runs: a bad file must not cost a measurement."""
    name = config.option.baseline
    if name is None:
        return
    path = baseline.baseline_path(name, config.rootpath)
    try:
        stored = baseline.load(path)
    except baseline.BaselineError as error:
        raise pytest.UsageError(str(error)) from error
    config.stash[comparison_key] = Comparison(
        config, path, stored, config.option.gate, frozenset(os.sched_getaffinity(0))
    )


def missing_cases(config: pytest.Config) -> List[str]:
    """Return the stored cases that no longer exist, or that ran here without being measured."""
    comparison = config.stash.get(comparison_key, None)
    run = config.stash.get(run_key, None)
    if comparison is None or run is None:
        return []
    results = run.results
    unmeasured = [
        nodeid
        for nodeid in comparison.stored
        if nodeid in results.outcomes and nodeid not in results.benchmarks
    ]
    return comparison.missing(config.stash[selection_key].nodeids) + unmeasured


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the baseline asked for and set the exit code of session-level verdicts."""
    config = session.config
    run = config.stash.get(run_key, None)
    if run is None:
        return
    finished = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    if finished and not _save_baseline(config, run) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.USAGE_ERROR
    if config.option.gate is None or session.exitstatus != pytest.ExitCode.OK:
        return
    kinds = {verdict["kind"] for verdict in run.results.verdicts.values()}
    if missing_cases(config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    elif not kinds & set(gate.COMPARED):
        session.exitstatus = EXIT_NOTHING_COMPARED


def _save_baseline(config: pytest.Config, run: Run) -> bool:
    """Write the baseline where one was asked for; return False if that failed."""
    name = config.option.baseline_save
    if name is None:
        return True
    sound = [
        benchmark
        for benchmark in run.results.benchmarks.values()
        if not record_of(benchmark)["implausible"]
    ]
    regressed = [v for v in run.results.verdicts.values() if v["kind"] == gate.REGRESSED]
    if regressed or not sound:
        why = f"{len(regressed)} cases regressed" if regressed else "no case was measured"
        run.closing.append(f"no baseline was written: {why}")
        return True
    path = baseline.baseline_path(name, config.rootpath)
    try:
        baseline.save(path, pedantic.document(config, sound))
    except baseline.BaselineError as error:
        run.closing.append(f"{error}; the results are in {run.journal.path}")
        return False
    run.closing.append(f"baseline with {len(sound)} cases written to {path}")
    return True
