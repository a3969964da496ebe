"""`--processes`, and the verdict on each case: after its call, in its own test.

A meter leaves what it measured in the test's stash. The case is measured in as many processes as
are wanted, then compared with the baseline or with another environment.
"""

from __future__ import annotations

from typing import Callable, List, Optional

import pytest

from ipubench.plugins.compare import counting
from ipubench.plugins.compare.against_plugin import against_key
from ipubench.plugins.compare.baseline_plugin import comparison_key, judge_with_baseline
from ipubench.plugins.compare.fresh_processes import FreshProcesses, processes_wanted
from ipubench.plugins.compare.policy import inconclusive_fails
from ipubench.plugins.gate.countable import LEAST_FRESH
from ipubench.plugins.measure.base import Measured, measured_key, recorded_key
from ipubench.plugins.record.record import record_of
from ipubench.plugins.record.verdict import (
    INCONCLUSIVE,
    REGRESSED,
    Verdict,
    message,
    undecided_message,
)
from ipubench.plugins.run.bounds import run_once, unbounded
from ipubench.plugins.run.progress import progress_key
from ipubench.plugins.run.results import run_key
from ipubench.plugins.run.time_spent import spent_key


def judge_case(item: pytest.Item) -> None:
    """Judge what a case has measured, once its own call has returned.

    pytest calls the bench function in a hook of the same name, which comes before this one; where
    it raises, nothing is judged. What is printed and raised here belongs to the call of the test.
    """
    measured = item.stash.get(measured_key, [])
    item.stash[measured_key] = []  # they hold the step
    for case_run in item.stash.get(recorded_key, ()):
        case_run.add_extra()  # a test may write extra_info after its measurement
    failures: List[str] = []
    with unbounded(item.config):
        for one in measured:
            with item.config.stash[spent_key].during("compare"):
                failures += conclude(item, one, item.config.stash[progress_key].phase)
    if failures:
        run_once(item)  # fresh processes have confirmed it
        pytest.fail("\n".join(failures), pytrace=False)


def conclude(item: pytest.Item, measured: Measured, progress: Callable[[str], None]) -> List[str]:
    """Measure a case in as many processes as are wanted, then judge it.

    Returns why it fails: if it has regressed, or with ``--gate-inconclusive=fail`` if it is open.
    """
    config, nodeid = item.config, measured.benchmark["fullname"]
    run = config.stash[run_key]
    counting.keep_counts(item, nodeid)
    timed = None if counting.is_counted_alone(item) else _timed(item, measured, progress)
    verdict = counting.verdict_by_counts(item, run.results.whole(nodeid), timed)
    if verdict is None:
        return []
    run.add({"type": "verdict", "case": nodeid, "verdict": verdict.as_dict()})
    name = record_of(measured.benchmark)["name"]
    if verdict.kind == REGRESSED:
        return [message(name, verdict, str(run.journal.path))]
    if verdict.kind == INCONCLUSIVE and inconclusive_fails(config):
        return [undecided_message(name, verdict)]
    return []


def _timed(
    item: pytest.Item, measured: Measured, progress: Callable[[str], None]
) -> Optional[Verdict]:
    """Measure a case in as many processes as are wanted; return what its times say, if anything."""
    config, nodeid = item.config, measured.benchmark["fullname"]
    wanted = processes_wanted(config) - 1
    most = wanted or max(config.option.gate_cap, LEAST_FRESH)
    fresh = FreshProcesses(item, nodeid, measured.release, most)
    if config.option.baseline_save is not None:
        fresh.for_a_baseline(wanted)
    elif wanted:
        fresh(wanted)
    against = config.stash.get(against_key, None)
    if against is not None:
        measured.release()
        return against.judge(item, measured.benchmark, progress)
    if comparison_key in config.stash:
        now = config.stash[run_key].results.benchmarks[nodeid]
        return judge_with_baseline(item, now, fresh.benchmarks, fresh)
    return None
