"""A process that measures a case in turns with another one, round by round.

plugins/elsewhere/alternating.py starts both and gives the orders, over the protocol of instances
(fixtures/instances/protocol.py). Version 2 has these, in this order:

- ``ready``: answered once everything is imported and the step is about to be built;
- ``prepare``: build, compile and calibrate; answers with the batches of a round, the timed share of
  it (``timed``), and why the step cannot alternate, if it cannot;
- ``warm_up``, with the batches of a round that both sides take;
- ``round``, again and again: answers with the seconds that it took;
- ``record``, with what ended the rounds: answers with the benchmark that a process of its own would
  have recorded;
- ``close``, after which the test goes on to its end, and may still say that it failed.

Between two orders this process does nothing, so that the other one has the machine.
"""

from __future__ import annotations

import time
from typing import Any, List, Tuple

import pytest

from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.instances.instance import Instance
from ipubench.fixtures.runtimes.step import Step
from ipubench.plugins.measure.base import (
    BatchFacts,
    CaseRun,
    fail_where_implausible,
)
from ipubench.plugins.measure.meter import Meter, WarmUp
from ipubench.plugins.measure.peaks import Peaks
from ipubench.plugins.measure.rounds import Calibrated, Limits, Rounds
from ipubench.plugins.record.pytest_benchmark_adapter import EnoughRounds, finished
from ipubench.plugins.record.structs import Facts, Record, as_plain

# Worker threads of a framework spin for a while after their work. This process is quiet once it
# has used less than a tenth of one CPU between two looks; they end after so many seconds.
LOOK_SECONDS = 0.002
QUIET_SHARE = 0.1
MOST_SPINNING_SECONDS = 0.3


class Orders:
    """What the controlling run orders; each is answered when the next one is awaited."""

    def __init__(self, member: Instance) -> None:
        self._member = member
        self._answers: List[Any] = []

    def answer(self, value: Any) -> None:
        """Note the answer to the latest order."""
        self._answers.append(value)

    def answer_last(self) -> None:
        """Answer the last order at once."""
        self._member.reply(None)

    def wait(self, *expected: str) -> Any:
        """Answer the order before, wait for one of the ``expected`` ones, return its argument."""
        return self.wait_for_any(*expected)[1]

    def wait_for_any(self, *expected: str) -> Tuple[str, Any]:
        """Like :meth:`wait`, but return the name as well."""
        if self._answers:
            wait_until_quiet()
            self._member.reply(self._answers.pop())
        found = self._member.next_command()
        if found is None:
            pytest.exit("the run that started this process is gone", returncode=1)
        if found[0] not in expected:
            pytest.exit(f"{found[0]} was ordered and {expected} expected", returncode=1)
        return found


def wait_until_quiet() -> None:
    """Return once the threads of this process no longer use the CPU, or after a while."""
    deadline = time.monotonic() + MOST_SPINNING_SECONDS
    while time.monotonic() < deadline:
        start, used = time.monotonic(), time.process_time()
        time.sleep(LOOK_SECONDS)
        if time.process_time() - used < QUIET_SHARE * (time.monotonic() - start):
            return


class OrderedRounds(Rounds):
    """Rounds of which each is ordered; no canary, because the other side's rounds take its place.

    The seconds of each are answered.
    """

    orders: Orders

    def before_round(self, seconds: List[float]) -> None:
        """Answer with the latest round, and wait for the next one or for the end."""
        self.orders.answer(seconds[-1] if seconds else None)
        order, argument = self.orders.wait_for_any("round", "record")
        if order == "record":
            self.stopped_by = argument
            raise EnoughRounds


class AlternatingMeter(Meter):
    """Measures as :class:`Meter` does, each part when it is told to; the run records it."""

    def __init__(self, case_run: CaseRun, peaks: Peaks, member: Instance) -> None:
        super().__init__(case_run, peaks)
        self._orders = Orders(member)

    def work_on(self, step: Step, facts: BatchFacts) -> None:
        """Obey until the controlling run has what it wants."""
        self._orders.wait("ready")
        self._orders.answer(None)
        self._orders.wait("prepare")
        super().work_on(step, facts)
        self._orders.wait("close")
        self._orders.answer_last()

    def refuse(self, why: str) -> None:
        """Tell who directs that the case cannot take turns, which ends this process."""
        self._orders.wait("ready")
        self._orders.answer(None)
        self._orders.wait("prepare")
        self._orders.answer({"batches": 1, "unfit": why})
        self._orders.wait("close")

    def _adapts(self, step: Step) -> bool:
        """Both sides measure what is configured: neither knows what the other would choose."""
        return False

    def _choose_batches(self, step: Step, calibrated: bool) -> Calibrated:
        found = super()._choose_batches(step, calibrated)
        chosen = step.batches_per_step
        timed = step.timed_share()
        self._orders.answer({"batches": chosen, "unfit": why_unfit(step), "timed": timed})
        step.batches_per_step = self._orders.wait("warm_up")
        same = step.batches_per_step == chosen
        return found if same else Calibrated(batches=found.batches)

    def _rounds(self, warm: WarmUp, step: Step) -> Rounds:
        budget = options_of(self.config).budget * step.timed_share()
        rounds = OrderedRounds(Limits(budget), self.device.clock, None)
        rounds.orders = self._orders
        return rounds

    def _finished(self, step: Step) -> Facts:
        return step.finish()

    def _record(self, record: Record, step: Step) -> None:
        fail_where_implausible(record)
        self._orders.answer(as_plain(finished(self.benchmark, record)))


def why_unfit(step: Step) -> str:
    """Return why a step cannot take turns with another process, in words; '' where it can."""
    if step.prefetched_batches:
        return "its input is loaded in the background, also while the other side is timed"
    if step.most_rounds is not None:
        return "its work ends after a number of rounds"
    if step.round_clock() is not None and step.timed_share() == 1:
        return "it takes its times itself"
    return ""
