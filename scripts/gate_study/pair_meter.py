"""One process of a pair in the gate study's pool: follows collect_pairs.py's orders.

The orders are those of plugins/measure/alternating.py and four more: ``case`` returns the name of
the next case; ``build`` may run in both processes at a time; ``level``, with a share of extra work,
precedes the rounds of that level; ``close`` ends the case without a record.
"""

from __future__ import annotations

import gc
import statistics
from typing import Callable

from ipubench.fixtures.instances.instance import Instance
from ipubench.fixtures.runtimes.step import Step
from ipubench.plugins.measure import rounds
from ipubench.plugins.measure.alternating import Orders, why_unfit
from ipubench.plugins.measure.base import BatchFacts, CaseRun, StepMeter
from ipubench.plugins.record import pytest_benchmark_adapter
from scripts.gate_study.extra_work import ExtraWork

#: The last rounds of the warm-up, which show how long a round takes.
LAST_ROUNDS = 3


class PairMeter(StepMeter):
    """Measures each case alternately with the other process, with the ordered extra work."""

    def __init__(self, case_run: CaseRun, member: Instance) -> None:
        super().__init__(case_run)
        self._orders = Orders(member)

    def work_on(self, step: Step, facts: BatchFacts) -> None:
        """Follow orders until the collector closes this case."""
        orders, clock = self._orders, self.device.clock
        pytest_benchmark_adapter.leave_out(self.benchmark)
        orders.wait("case")
        orders.answer(self.item.nodeid.split("::")[-1])
        orders.wait("build")
        self.build(step)
        step.batches_per_step = 1
        step()
        orders.answer(None)
        orders.wait("ready")
        orders.answer(None)
        orders.wait("prepare")
        rounds.calibrate(step, clock)
        orders.answer({"batches": step.batches_per_step, "unfit": why_unfit(step)})
        step.batches_per_step = orders.wait("warm_up")
        dropped = rounds.warm_up(step, clock).seconds
        extra, usual = ExtraWork(clock), statistics.median(dropped[-LAST_ROUNDS:])
        items = facts.items * step.counted_processes * step.batches_per_step
        orders.answer(None)
        slowed: Callable[[], None] = step
        while True:
            order, argument = orders.wait_for_any("level", "round", "close")
            if order == "close":
                break
            if order == "level":
                slowed = extra.after(step, extra.calls(usual, argument))
                orders.answer({"items_per_round": items, "unit": facts.unit})
            else:
                orders.answer(rounds.timed(slowed, clock))
        self.close()
        gc.collect()  # The next case must not find this one's state.
        orders.answer_last()
