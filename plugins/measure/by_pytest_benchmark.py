"""What pytest-benchmark measures by its own rules, and the record of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ipubench.fixtures.runtimes.call import OWN
from ipubench.plugins.measure.base import Calls, CaseRun, timed_by_another
from ipubench.plugins.measure.disturbance import Disturbance
from ipubench.plugins.record import host_process
from ipubench.plugins.record.record import ITSELF
from ipubench.plugins.record.statistics import latency
from ipubench.plugins.record.structs import Memory
from ipubench.plugins.run.progress import progress_key
from ipubench.plugins.run.results import run_key
from ipubench.plugins.run.time_spent import spent_key

UNIT = "calls"
#: Why such a case cannot take turns with another process, round by round.
AS_THE_TEST_SAYS = "pytest-benchmark measures it as the test says"


@dataclass
class Watched:
    """A measurement while it goes on: what memory it takes, and other programs from it."""

    case_run: CaseRun
    memory: host_process.PeakMemory
    others: Disturbance
    _goes_on: bool = True

    @classmethod
    def begin(cls, case_run: CaseRun) -> Watched:
        """Begin to watch, once the machine is quiet where that was asked for."""
        case_run.wait_for_quiet()
        watched = cls(case_run, host_process.PeakMemory(), Disturbance.of(case_run.device))
        _phase(case_run, "rounds", "measuring as pytest-benchmark does")
        watched.others.read()
        return watched

    def end(self) -> None:
        """The rounds are over."""
        if self._goes_on:
            self._goes_on = False
            self.others.read()

    def record(self) -> None:
        """Write the record of the case."""
        self.end()
        _phase(self.case_run, "record", "recording")
        stats: Any = self.case_run.benchmark.stats
        calls, seconds = stats.iterations, [s * stats.iterations for s in stats.stats.data]
        if min(seconds) <= 0:
            why = "a round took no time by its timer, so it has no rate"
            closing = self.case_run.item.config.stash[run_key].closing
            closing.append(f"{self.case_run.case.id}: not recorded: {why}")
            return
        record = timed_by_another(
            self.case_run.first_facts(),
            Calls(ITSELF, calls, UNIT),
            seconds,
            latency([s / calls for s in seconds], ITSELF),
            Memory(self.memory.read(), self.memory.since, None),
            self.others.describe_whole(len(seconds)),
            effective={"precision": OWN, "measured_by": ITSELF},
            compile="none",
            canary_kind=self.case_run.device.canary_kind,
            data={"mode": OWN},
        )
        self.case_run.finish(record, release=lambda: None)


def _phase(case_run: CaseRun, part: str, text: str) -> None:
    stash = case_run.item.config.stash
    stash[spent_key].enter(part)
    stash[progress_key].phase(text)
