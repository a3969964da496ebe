"""The one loop of all comparisons: obtains what cases need, until each has a verdict.

Each turn asks all open cases. A case has a verdict, or it needs measurements
(plugins/gate/decision.py). The runner obtains them, for as many cases as possible at once, and adds
them to the run's results; then the cases are asked again. The time limit is here, and nowhere else.
"""

from __future__ import annotations

import time
from typing import Dict, List, Sequence, Tuple

from ipubench.plugins.compare.open_case import OpenCase
from ipubench.plugins.compare.runner import Runner
from ipubench.plugins.gate.decision import TIME_OVER, Need
from ipubench.plugins.state import Run


def settle(run: Run, cases: Sequence[OpenCase], runner: Runner) -> None:
    """Obtain measurements until each case has a verdict, has failed, or is out of time."""
    left = run.gate_time.share(len(cases))
    waiting = _needs(cases)
    while waiting:
        batch, need = _batch(waiting)
        seconds = runner.seconds(batch, need)
        if seconds > left:
            for case in waiting:
                case.conclude([TIME_OVER])
            return
        started = time.monotonic()
        with run.gate_time.spending():
            runner.obtain(batch, need)
        left -= time.monotonic() - started
        waiting = _needs(list(waiting))
        runner.show(cases, waiting, left)


def _needs(cases: Sequence[OpenCase]) -> Dict[OpenCase, Need]:
    """Ask the open cases; return what they need."""
    asked = {case: case.decide() for case in cases if case.is_open}
    return {case: need for case, need in asked.items() if isinstance(need, Need)}


def _batch(waiting: Dict[OpenCase, Need]) -> Tuple[List[OpenCase], Need]:
    """Return the cases to measure next, all with the same need.

    Those that can share their processes come first.
    """
    together = [
        case for case, need in waiting.items() if need.pairs and not need.alone and case.can_share
    ]
    if together:
        return together, waiting[together[0]]
    first = next(iter(waiting))
    return [first], waiting[first]
