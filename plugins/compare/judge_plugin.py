"""`--processes`, and the verdict on each case: after its call, in its own test.

A meter leaves what it measured in the test's stash. The case is measured in as many processes as
are wanted, then compared with the baseline or with another environment.
"""

from __future__ import annotations

from typing import Callable

import pytest

from ipubench.plugins.compare.against_plugin import against_key
from ipubench.plugins.compare.baseline_plugin import comparison_key, judge_with_baseline
from ipubench.plugins.compare.fresh_processes import FreshProcesses, processes_wanted
from ipubench.plugins.gate.countable import LEAST_FRESH
from ipubench.plugins.measure.base import Measured, measured_key
from ipubench.plugins.record.record import record_of
from ipubench.plugins.record.verdict import REGRESSED, message
from ipubench.plugins.run.bounds import run_once, unbounded
from ipubench.plugins.run.progress import progress_key
from ipubench.plugins.run.results import run_key
from ipubench.plugins.run.subtests import why_failed
from ipubench.plugins.run.time_spent import spent_key


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Judge what a case has measured, once its own call has returned.

    pytest calls the bench function in a hook of the same name, which comes before this one; where
    it raises, or a subtest of it fails, nothing is judged. What is printed and raised here belongs
    to the call of the test.
    """
    measured = item.stash.get(measured_key, None)
    if measured is None:
        return
    del item.stash[measured_key]  # it holds the step
    if why_failed(item) is None:
        with item.config.stash[spent_key].during("compare"), unbounded(item.config):
            conclude(item, measured, item.config.stash[progress_key].phase)


def conclude(item: pytest.Item, measured: Measured, progress: Callable[[str], None]) -> None:
    """Measure a case in as many processes as are wanted, then judge it.

    A regressed case fails here.
    """
    config = item.config
    run = config.stash[run_key]
    wanted = processes_wanted(config) - 1
    most = wanted or max(config.option.gate_cap, LEAST_FRESH)
    fresh = FreshProcesses(item, measured.release, most)
    if config.option.baseline_save is not None:
        fresh.for_a_baseline(wanted)
    elif wanted:
        fresh(wanted)
    against = config.stash.get(against_key, None)
    if against is not None:
        measured.release()
        verdict = against.judge(item, progress)
    elif comparison_key in config.stash:
        verdict = judge_with_baseline(item, measured.benchmark, fresh.benchmarks, fresh)
    else:
        return
    run.add({"type": "verdict", "case": item.nodeid, "verdict": verdict.as_dict()})
    if verdict.kind == REGRESSED:
        run_once(item)  # fresh processes have confirmed it
        name = record_of(measured.benchmark)["name"]
        pytest.fail(message(name, verdict, str(run.journal.path)), pytrace=False)
