"""Reads stored results as a report: runs, shards, and a comparison with a baseline."""

from __future__ import annotations

from pathlib import Path
from typing import List, Optional, Sequence

from msgspec.structs import replace

from ipubench.plugins.baseline import store
from ipubench.plugins.baseline.commands import suite_root
from ipubench.plugins.baseline.entries import by_case, differences, find, key_of, newest
from ipubench.plugins.baseline.format import BaselineError
from ipubench.plugins.baseline.renamed import names_in, renamed
from ipubench.plugins.baseline.runs import joined, read_run
from ipubench.plugins.record.text import percent
from ipubench.plugins.results.rows import Report
from ipubench.plugins.results.run_facts import lost


def read_all(paths: Sequence[Path]) -> Report:
    """Return all runs as one; an unreadable run counts as lost.

    Raises BaselineError if no run can be read.
    """
    found: List[Report] = []
    problems: List[str] = []
    lost_runs = []
    for path in paths:
        try:
            if not path.suffix and not store.exists(path):
                raise BaselineError(f"{path} is not there: the shard left no results")
            one = read_run(path)
        except BaselineError as error:
            problems.append(str(error))
            lost_runs.append(lost(str(path), str(error)))
            continue
        # Name a shard by its given path.
        named = len(one.runs) == 1
        runs = [replace(run, name=str(path)) for run in one.runs] if named else one.runs
        found.append(Report(one.benchmarks, runs, around=one.around))
    if not found:
        raise BaselineError("\n".join(problems))
    whole = joined(found)
    return Report(whole.benchmarks, [*whole.runs, *lost_runs], around=whole.around)


def stored_report(paths: Sequence[Path], before: Optional[Path], threshold: float) -> Report:
    """Return a report on stored results with their own verdicts. Raises BaselineError.

    Runs without verdicts are compared with the baseline ``before``, if given.
    """
    stored = read_all(paths)
    now = newest(stored.benchmarks)
    report = Report(now, stored.runs, around=stored.around)
    if before is None:
        return report
    judged = [run for run in report.runs if run.judged]
    if judged:
        raise BaselineError(
            f"--baseline={before}: {judged[0].name} was compared with {judged[0].baseline} "
            f"({judged[0].gate}) when it ran, and its own verdicts are shown: leave out --baseline"
        )
    entries = renamed(store.load_all(before), names_in(suite_root()))
    report.judge(
        {
            report.names.get(one.place, one.key.nodeid): one.verdict
            for one in differences(entries, now, threshold)
        },
        str(before),
        f"gate {percent(threshold)}",
    )
    found = by_case(entries)
    report.keep_compared(lambda benchmark: find(found, *key_of(benchmark)))
    return report
