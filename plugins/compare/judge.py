"""Judges each case at the end of its test's call.

If nothing has compared the case before its test (plugins/compare/other_side.py), it is measured
here in as many processes as it needs.
"""

from __future__ import annotations

from typing import List, Optional, Sequence

import pytest

from ipubench.fixtures.command_line import options_of
from ipubench.plugins.compare import counting
from ipubench.plugins.compare.loop import settle
from ipubench.plugins.compare.open_case import OpenCase
from ipubench.plugins.compare.policy import inconclusive_fails, without_gate
from ipubench.plugins.compare.runner import ProcessRunner
from ipubench.plugins.measure.base import Measured
from ipubench.plugins.record.verdict import (
    INCONCLUSIVE,
    REGRESSED,
    Verdict,
    message,
    undecided_message,
)
from ipubench.plugins.results.lines import VerdictLine
from ipubench.plugins.run.bounds import run_once
from ipubench.plugins.state import Run

NOT_MEASURED = "its processes have ended without measuring it"


def judge_case(run: Run, item: pytest.Item, measured: Sequence[Measured]) -> None:
    """Judge the measurements of a case after its call.

    pytest calls the bench function in an earlier hook of the same name; if that raises, nothing is
    judged. Output and errors of this function belong to the test's call.
    """
    failures: List[str] = []
    settled = run.settled.get(item.nodeid)
    if settled is not None and settled.error is not None:
        raise settled.error
    if settled is not None and settled.verdict is not None and not measured:
        run.add(VerdictLine(item.nodeid, settled.verdict))  # nothing could be measured
    with run.bounds.lifted():
        for one in measured:
            with run.spent.during("compare"):
                failures += _judge(run, item, one)
    if failures:
        run_once(item)  # fresh processes have confirmed the failure
        pytest.fail("\n".join(failures), pytrace=False)


def _judge(run: Run, item: pytest.Item, measured: Measured) -> List[str]:
    """Measure a case in as many processes as needed and judge it; return the failure messages.

    A case fails if it regressed or, with ``--gate-inconclusive=fail``, if it is inconclusive.
    """
    nodeid = measured.benchmark.fullname
    counting.keep_counts(run, nodeid)
    alone = counting.is_counted_alone(run)
    timed = None if alone else _judge_times(run, item, measured)
    verdict = counting.with_counts(run, item, run.results.with_fresh(nodeid), timed)
    if verdict is None:
        return []
    verdict = without_gate(run.policy, item, verdict)
    run.add(VerdictLine(nodeid, verdict))
    name, given = measured.benchmark.record.name, options_of(run.config).gate_inconclusive
    if verdict.kind == REGRESSED:
        return [message(name, verdict, str(run.path))]
    if verdict.kind == INCONCLUSIVE and inconclusive_fails(run.policy, given):
        return [undecided_message(name, verdict)]
    return []


def _judge_times(run: Run, item: pytest.Item, measured: Measured) -> Optional[Verdict]:
    """Return the verdict on a case's times; measure it in more processes if it has none yet."""
    nodeid = measured.benchmark.fullname
    settled = run.settled.get(nodeid)
    if settled is None:
        case = OpenCase(run, item, nodeid, measured.release)
        settle(run.gate_time, [case], ProcessRunner(run))
        if case.left and run.against is not None:
            case.verdict = Verdict(INCONCLUSIVE, reasons=(NOT_MEASURED,))
        settled = case
    if settled.error is not None:
        raise settled.error
    return settled.verdict
