"""One process of a pair in the gate study's pool: runs the commands of collect_pairs.py.

The commands are those of plugins/measure/served.py and four more: ``case`` returns the name of
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
from ipubench.plugins.measure.base import BatchFacts, CaseRun, StepMeter
from ipubench.plugins.measure.served import Commands, Work, why_unfit
from ipubench.plugins.record import pytest_benchmark_adapter
from scripts.gate_study.extra_work import ExtraWork

#: The last rounds of the warm-up, which show how long a round takes.
LAST_ROUNDS = 3


class PairMeter(StepMeter):
    """Measures each case alternately with the other process, with extra work as commanded."""

    def __init__(self, case_run: CaseRun, instance: Instance) -> None:
        super().__init__(case_run)
        self._commands = Commands(instance)

    def work_on(self, step: Step, facts: BatchFacts) -> None:
        """Run the collector's commands until it closes this case."""
        commands, clock = self._commands, self.device.clock
        pytest_benchmark_adapter.leave_out(self.benchmark)
        commands.wait("case")
        commands.reply(self.item.nodeid.split("::")[-1])
        commands.wait("build")
        self.build(step)
        step.batches_per_step = 1
        step()
        commands.reply(None)
        commands.wait("prepare")
        rounds.calibrate(step, clock)
        commands.reply({"batches": step.batches_per_step, "unfit": why_unfit(step)})
        step.batches_per_step, _ = commands.wait("warm_up")
        dropped = rounds.warm_up(step, clock).seconds
        extra, usual = ExtraWork(clock), statistics.median(dropped[-LAST_ROUNDS:])
        items = facts.items * step.counted_processes * step.batches_per_step
        commands.reply(None)
        slowed: Callable[[], None] = step
        while True:
            command, argument = commands.wait_for_any("level", "round", "close")
            if command == "close":
                break
            if command == "level":
                slowed = extra.after(step, extra.calls(usual, argument))
                commands.reply({"items_per_round": items, "unit": facts.unit})
            else:
                before = Work.so_far()
                seconds = rounds.timed(slowed, clock)
                commands.reply([seconds, *Work.so_far().since(before)])
        self.close()
        gc.collect()  # The next case must not find this one's state.
        commands.reply_to_close()
