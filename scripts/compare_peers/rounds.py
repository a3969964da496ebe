"""Interleaved rounds, and the ratio of two programs with its interval.

Each program runs once a round, each in turn the first, so that a disturbance of the machine meets
all alike. A ratio is the median over rounds of the ratio within a round.
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

#: Below, no pair of rounds encloses the median with 95 % confidence.
LEAST_ROUNDS = 6
WARM_UP = 3
# Programs have run once and compiled themselves by now: after a call this long no other is needed.
LONG_SECONDS = 0.5
Clock = Callable[[], float]


@dataclass(frozen=True)
class Ratio:
    """How many times as fast the first of two programs is."""

    median: float
    low: float  # of the median's 95 % interval
    high: float


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Return our rate over theirs from the seconds of paired rounds.

    The interval is that of order statistics, which knows no distribution. Raises ValueError below
    LEAST_ROUNDS rounds, or where rounds have no partner.
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
    """Return the seconds per batch of every round by program; each program has run once.

    A timed call takes as many batches as last ``call_seconds``, or as let LEAST_ROUNDS rounds fit
    into ``seconds``, one at least. Rounds go on for ``seconds``, and until there are LEAST_ROUNDS.
    Disturbed rounds are left out where enough others remain.
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
    """A program, and how many batches are timed at once."""

    program: Program
    batches: int

    @classmethod
    def warmed(cls, program: Program, call_seconds: float, clock: Clock) -> _Call:
        """Run the program until its batches cost what they will, and find their number."""
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
            # The first batch after another program finds its data out of the caches. A long one
            # does not notice.
            self.program(1)
        start = clock()
        self.program(self.batches)
        return (clock() - start) / self.batches
