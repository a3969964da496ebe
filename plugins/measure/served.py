"""Measures a case in turns with another process, round by round.

plugins/processes/pair.py starts both processes and sends the commands, over the protocol of
instances (fixtures/instances/protocol.py). Version 6 has these, in this order, for each case:

- ``ready``: the reply comes when everything is imported and the step is about to be built; it is
  the case's name;
- ``prepare``, with whether a call is known to be long: build, compile and calibrate; the reply has
  the batches of a round, its timed share (``timed``), whether a call computes in its own thread
  only (``alone``), and the reason if the step cannot alternate;
- ``warm_up``, with what both processes take: the batches of a round, and the CPU on which the step
  is called, or None;
- ``round``, once for each round: the reply is its seconds, the CPU seconds that this process used
  meanwhile, the seconds for which its threads waited for a CPU (None if unknown), and the CPU
  seconds of other threads and processes that it started;
- ``record``, with what ended the rounds: the reply is the benchmark;
- ``close``: the test continues to its end, and may still fail. In place of ``prepare`` or
  ``warm_up`` it skips the test.

Between two commands this process does nothing, so that the other one has the machine.
"""

from __future__ import annotations

import contextlib
import resource
import time
from typing import Any, List, NamedTuple, Optional, Tuple

import pytest

from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.instances.instance import Instance
from ipubench.fixtures.instances.protocol import LEFT_OUT
from ipubench.fixtures.machine.contention import has_children, waited_seconds
from ipubench.fixtures.machine.processor import running_on
from ipubench.fixtures.runtimes import declared
from ipubench.fixtures.runtimes.step import Step
from ipubench.plugins.measure.base import (
    BatchFacts,
    CaseRun,
    fail_where_implausible,
)
from ipubench.plugins.measure.energy import EnergyWindow
from ipubench.plugins.measure.meter import Meter, WarmUp
from ipubench.plugins.measure.peaks import Peaks
from ipubench.plugins.measure.rounds import Calibrated, Limits, Rounds
from ipubench.plugins.processes.pair import computes_alone
from ipubench.plugins.record.pytest_benchmark_adapter import EnoughRounds, finished
from ipubench.plugins.record.structs import Facts, Record, as_plain

# Worker threads of a framework spin for a while after their work. This process is quiet when it
# has used less than a tenth of one CPU between two looks. It waits no longer than the maximum.
LOOK_SECONDS = 0.002
QUIET_SHARE = 0.1
MOST_SPINNING_SECONDS = 0.3


class Commands:
    """The commands of the controlling run. Waiting for the next one sends the last reply."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._replies: List[Any] = []
        #: Whether threads may still use the CPU after a call has returned.
        self.may_spin = True

    def reply(self, value: Any) -> None:
        """Keep the reply to the latest command."""
        self._replies.append(value)

    def reply_to_close(self) -> None:
        """Reply to the last command at once."""
        self._instance.reply(None)

    def wait(self, *expected: str) -> Any:
        """Send the kept reply, wait for one of the ``expected`` commands, return its argument."""
        return self.wait_for_any(*expected)[1]

    def wait_for_any(self, *expected: str) -> Tuple[str, Any]:
        """Like :meth:`wait`, but return the name as well."""
        if self._replies:
            if self.may_spin:
                wait_until_quiet()
            self._instance.reply(self._replies.pop())
        found = self._instance.next_command()
        if found is None:
            pytest.exit("the run that started this process is gone", returncode=1)
        if found[0] not in expected:
            pytest.exit(f"got the command {found[0]}, expected {expected}", returncode=1)
        return found


def wait_until_quiet() -> None:
    """Return once the threads of this process no longer use the CPU, or after a while."""
    deadline = time.monotonic() + MOST_SPINNING_SECONDS
    while time.monotonic() < deadline:
        start, used = time.monotonic(), time.process_time()
        time.sleep(LOOK_SECONDS)
        if time.process_time() - used < QUIET_SHARE * (time.monotonic() - start):
            return


class Work(NamedTuple):
    """What this process has done so far: its CPU seconds, and those that its threads waited.

    ``by_others``: the CPU seconds of other threads than this one, and of processes that this one
    has started and that have ended.
    """

    used: float
    waited: Optional[float]
    by_others: float

    @classmethod
    def so_far(cls) -> Work:
        """Return what it has done until now."""
        used, ended = time.process_time(), resource.getrusage(resource.RUSAGE_CHILDREN)
        others = used - time.thread_time() + ended.ru_utime + ended.ru_stime
        return cls(used, waited_seconds(), others)

    def since(self, before: Work) -> Work:
        """Return what it has done since then."""
        unknown = self.waited is None or before.waited is None
        waited = None if unknown else (self.waited or 0.0) - (before.waited or 0.0)
        return Work(self.used - before.used, waited, self.by_others - before.by_others)

    @property
    def is_of_one_thread(self) -> bool:
        """Whether this thread alone computes, and no process that it has started runs."""
        return computes_alone(self.by_others, self.used) and not has_children()


class RoundsOnCommand(Rounds):
    """Runs a round for each command. The other process's rounds take the canary's place."""

    commands: Commands
    #: What this process had done when the round began.
    begun: Work = Work(0.0, None, 0.0)

    def before_round(self, seconds: List[float]) -> None:
        """Reply with the latest round, and wait for the next command or the end."""
        work = Work.so_far().since(self.begun)
        if seconds:
            self.energy.end()
            self.commands.reply([seconds[-1], *work])
        else:
            self.commands.reply(None)
        command, argument = self.commands.wait_for_any("round", "record")
        if command == "record":
            self.stopped_by = argument
            raise EnoughRounds
        self.energy.begin()
        self.begun = Work.so_far()


class ServedMeter(Meter):
    """Like :class:`Meter`, but waits for a command before each part and replies with the record."""

    def __init__(self, case_run: CaseRun, peaks: Peaks, instance: Instance) -> None:
        super().__init__(case_run, peaks)
        self._commands = Commands(instance)
        #: Whether a call is known to take longer than the budget.
        self._is_long = False
        #: Holds the thread on one CPU.
        self._pinned = contextlib.ExitStack()

    def work_on(self, step: Step, facts: BatchFacts) -> None:
        """Measure the step as the controlling run commands."""
        self._begin()
        with self._pinned:
            super().work_on(step, facts)
        self._commands.wait("close")
        self._commands.reply_to_close()

    def refuse(self, why: str) -> None:
        """Reply that the case cannot alternate, and skip its test."""
        self._begin()
        self._commands.reply({"batches": 1, "unfit": why})
        self._go_on()

    def _begin(self) -> None:
        self._commands.wait("ready")
        self._commands.reply(self.case_run.fullname)
        self._is_long = bool(self._go_on("prepare"))

    def _go_on(self, *expected: str) -> Any:
        """Return the argument of the next command; skip the test if it is ``close``."""
        command, argument = self._commands.wait_for_any(*expected, "close")
        if command == "close":
            self._commands.reply_to_close()
            pytest.skip(LEFT_OUT)
        return argument

    def _adapts(self, step: Step) -> bool:
        """Return False: the two processes could choose differently."""
        return False

    def _was_a_round(self, step: Step, facts: BatchFacts, seconds: float) -> bool:
        """Return whether the first call needs no further warm-up: earlier pairs show long calls."""
        if not self._is_long or seconds < options_of(self.config).budget:
            return False
        self._agree(step)
        return True

    def _choose_batches(self, step: Step, calibrated: bool) -> Calibrated:
        wait_until_quiet()  # a library's threads spin when they begin, too
        before = Work.so_far()
        found = super()._choose_batches(step, calibrated)
        alone = found.batches > 0 and Work.so_far().since(before).is_of_one_thread
        same = self._agree(step, alone)
        return found if same else Calibrated(batches=found.batches)

    def _agree(self, step: Step, alone: bool = False) -> bool:
        """Reply with the batches of a round, and take those of both; return whether both agree.

        ``alone``: whether a call is known to compute in this thread only.
        """
        chosen, unfit = step.batches_per_step, why_unfit(step)
        timed = step.timed_share
        self._commands.reply({"batches": chosen, "unfit": unfit, "timed": timed, "alone": alone})
        step.batches_per_step, cpu = self._go_on("warm_up")
        self._pinned.enter_context(running_on(None if cpu is None else {cpu}))
        self._commands.may_spin = cpu is None
        return step.batches_per_step == chosen

    def _rounds(self, warm: WarmUp, step: Step) -> Rounds:
        budget = options_of(self.config).budget * step.timed_share
        energy = EnergyWindow.of(self.device)
        rounds = RoundsOnCommand(Limits(budget), self.device.clock, None, energy=energy)
        rounds.commands = self._commands
        return rounds

    def _finished(self, step: Step) -> Facts:
        return declared.finished(step).facts

    def _record(self, record: Record, step: Step) -> None:
        fail_where_implausible(record)
        self._commands.reply(as_plain(finished(self.benchmark, record)))


def why_unfit(step: Step) -> str:
    """Return why a step cannot take turns with another process; '' if it can."""
    if step.loading.prefetched:
        return "its input is loaded in the background, also while the other side is timed"
    if step.rounds.most is not None:
        return "its work ends after a number of rounds"
    if step.clock is not None and step.timed_share == 1:
        return "it takes its times itself"
    return ""
