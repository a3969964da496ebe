"""Interleaved rounds, and the ratio of two programs with its confidence interval.

Each program runs once per round, and the first one changes from round to round, so a disturbance of
the machine affects all alike. A ratio is the median over rounds of the ratio within a round.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import Callable, Dict, List, Mapping, Sequence

from ipubench.fixtures.machine.contention import Contention
from ipubench.plugins.measure.disturbance import Disturbance
from ipubench.plugins.record.statistics import median_interval
from scripts.compare_peers.case import Program

#: With fewer rounds, no pair encloses the median with 95% confidence.
LEAST_ROUNDS = 6
WARM_UP = 3
# By now each program has run once and compiled. After a call this long no other warm-up is needed.
LONG_SECONDS = 0.5
Clock = Callable[[], float]


@dataclass(frozen=True)
class Ratio:
    """How many times as fast as the second program the first one is."""

    median: float
    low: float  # of the median's 95% interval
    high: float


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Return our rate / theirs from the seconds of paired rounds.

    The interval comes from order statistics and assumes no distribution. Raises ValueError if there
    are fewer than LEAST_ROUNDS rounds or if the rounds are not paired.
    """
    if len(ours) != len(theirs) or len(ours) < LEAST_ROUNDS:
        raise ValueError(
            f"{len(ours)} and {len(theirs)} rounds: a ratio needs {LEAST_ROUNDS} pairs or more"
        )
    ratios = [other / own for own, other in zip(ours, theirs)]
    return Ratio(median(ratios), *median_interval(ratios))


def alternate(
    programs: Mapping[str, Program],
    seconds: float,
    call_seconds: float,
    clock: Clock = time.perf_counter,
) -> Dict[str, List[float]]:
    """Return each program's seconds per batch in every round. Each program has run once.

    A timed call runs as many batches as fit into ``call_seconds``, or fewer if LEAST_ROUNDS rounds
    must fit into ``seconds``, but at least one. Rounds run for ``seconds`` and until there are
    LEAST_ROUNDS. Disturbed rounds are left out if enough others remain.
    """
    call_seconds = min(call_seconds, seconds / (LEAST_ROUNDS * len(programs)))
    calls = {name: _Call.warmed(program, call_seconds, clock) for name, program in programs.items()}
    names = list(calls)
    times: Dict[str, List[float]] = {name: [] for name in names}
    rounds = 0
    contention = Contention()
    others = Disturbance(contention if contention.available else None)
    others.read()
    end = clock() + seconds
    while clock() < end or rounds < LEAST_ROUNDS:
        for name in names:
            times[name].append(calls[name].timed(clock))
        others.read()
        rounds += 1
        names.append(names.pop(0))
    quiet = others.kept(rounds)
    if sum(quiet) < LEAST_ROUNDS:
        return times
    return {name: [v for v, kept in zip(values, quiet) if kept] for name, values in times.items()}


@dataclass(frozen=True)
class _Call:
    """A program and the number of batches of a timed call."""

    program: Program
    batches: int

    @classmethod
    def warmed(cls, program: Program, call_seconds: float, clock: Clock) -> _Call:
        """Run the program until its time is stable, and choose the number of batches."""
        spent = []
        for _ in range(WARM_UP):
            start = clock()
            program(1)
            spent.append(clock() - start)
            if spent[-1] > LONG_SECONDS:
                break
        return cls(program, max(1, int(call_seconds / max(min(spent), 1e-9))))

    def timed(self, clock: Clock) -> float:
        """Return the seconds of a batch."""
        if self.batches > 1:
            # After another program the data of the first batch is not in the caches. For a long
            # batch that does not matter.
            self.program(1)
        start = clock()
        self.program(self.batches)
        return (clock() - start) / self.batches
