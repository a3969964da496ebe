"""Measures one case: warm-up, calibration, rounds with a canary before each, the stop rule.

This module is independent of pytest; ``plugins/measure/meter.py`` connects the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Callable, List, Optional, Sequence, Tuple

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.machine.frames import left_out
from ipubench.fixtures.runtimes.step import Step, Work
from ipubench.plugins.measure.disturbance import LEAST_ROUNDS, Disturbance, is_enough, longest
from ipubench.plugins.measure.energy import EnergyWindow
from ipubench.plugins.record.pytest_benchmark_adapter import EnoughRounds
from ipubench.plugins.record.statistics import relative_half_width, still_falling

__tracebackhide__ = left_out

Clock = Callable[[], float]
# Long enough for the timer and the scheduler not to matter, short enough for many rounds.
TARGET_ROUND_SECONDS = 0.1
TARGET_ROUND_SHARE = 0.1
LARGEST_BATCHES_PER_STEP = 1 << 20
# If a call with a fixed number of batches takes a larger share of the budget, it gets fewer.
LONGEST_ROUND_SHARE = 0.2
# A batch becomes lighter, if it can, when it would take longer at the usual share of the peak. This
# does not depend on the budget, because it changes what is measured.
LONGEST_BATCH_SECONDS = 1.0
# If a chunk of a burst takes this many times as long as the median, it has waited for the workers.
MOST_UNLIKE = 2.0
# A call that takes longer than this many rounds cannot be explained by a disturbance.
MOST_OF_A_DISTURBANCE = 5
# The gate compares medians of rounds: with fewer rounds they depend on luck.
LEAST_ROUNDS_FOR_PRECISION = 20
# While rounds still get faster, at most this many more are dropped.
MOST_EXTRA_WARM_UP = 10
# Calibration and dropped rounds take at most this share of the budget, and the rest of a round. The
# first call is not bounded, because its preparations are necessary. It counts as a round if the
# FLOP of its batches alone take as long.
WARM_UP_SHARE = 0.5
CANARY_WARM_UP = 3
CANARIES_AROUND_BACKGROUND_WORK = 20
LEAST_LATENCY_SAMPLES = 10
MOST_LATENCY_SAMPLES = 200
LATENCY_SHARE_OF_BUDGET = 0.1
# A call that is timed for latency takes at least this many times as long as the timer itself.
LEAST_OF_TIMER = 50
TIMER_SAMPLES = 100
# A disturbance hardly matters to a run that takes this many times as long.
MUCH_LONGER = 10.0
# A measured ceiling is the best of several tries within this time.
PEAK_SECONDS = 0.5


@dataclass(frozen=True)
class Limits:
    """When to stop: after exactly ``steps`` rounds, or at ``precision`` or ``budget`` seconds.

    ``most``: the rounds after which the work has an end.
    """

    budget: float = 5.0
    precision: float = 0.01
    steps: Optional[int] = None
    most: Optional[int] = None


@dataclass
class Rounds:
    """Runs the rounds of one case."""

    limits: Limits
    clock: Clock
    canary: Optional[Callable[[], None]]
    disturbance: Disturbance = field(default_factory=lambda: Disturbance(None))
    canaries: List[float] = field(default_factory=list)
    energy: EnergyWindow = field(default_factory=lambda: EnergyWindow(None, float))
    stopped_by: str = ""
    #: Seconds spent between the rounds, on canaries and on reading what others take.
    between: float = 0.0
    #: Called between two rounds with the seconds so far, to show them.
    show: Optional[Callable[[List[float]], None]] = None

    def before_round(self, seconds: List[float]) -> None:
        """End the rounds if the stop rule is met; otherwise time the canary."""
        self.between += timed(self.disturbance.read, self.clock)
        self.stopped_by = stop_reason(seconds, self.limits, self.between, self.disturbance.clean)
        if self.stopped_by:
            self.energy.end()
            raise EnoughRounds
        if seconds and self.show is not None:
            self.between += timed(partial(self.show, seconds), self.clock)
        if self.canary is not None:
            self.canaries.append(timed(self.canary, self.clock))
            self.between += self.canaries[-1]
        if not seconds:
            self.energy.begin()


def timed(work: Callable[[], object], clock: Clock) -> float:
    """Return the seconds that one call takes."""
    start = clock()
    work()
    return clock() - start


def timed_call(step: Step, clock: Clock) -> float:
    """Return the seconds that one call of a step takes.

    Raises CaseError if the device's clock stood still: then the call returned before the device
    had worked, and the rate would be infinite.
    """
    seconds = timed(step, clock)
    if seconds <= 0:
        raise CaseError(
            f"a call of {step.batches_per_step} batches took no time on the device's clock: "
            f"{type(step).__name__} returns before the device has worked; its call has to fetch a "
            "result or to wait for the device"
        )
    return seconds


def stop_reason(
    seconds: List[float],
    limits: Limits,
    between: float = 0.0,
    clean_of: Callable[[List[float]], List[float]] = list,
) -> str:
    """Return why the rounds end, or ''.

    The reasons are 'steps', 'end', 'precision', 'budget', and 'disturbed' if others still disturbed
    too many rounds after the budget was stretched. ``clean_of`` leaves disturbed rounds out. The
    seconds ``between`` rounds count towards the budget. A check takes longer the more rounds there
    are, so it happens about 20 times while their number doubles.
    """
    if limits.most is not None and len(seconds) >= max(1, limits.most):
        return "end"
    if limits.steps is not None:
        return "steps" if len(seconds) >= limits.steps else ""
    if len(seconds) % max(1, len(seconds) // 20):
        return ""
    spent = math.fsum(seconds) + between
    over = len(seconds) >= LEAST_ROUNDS and spent >= limits.budget
    if not over and len(seconds) < LEAST_ROUNDS_FOR_PRECISION:
        return ""
    clean = clean_of(seconds)
    if len(clean) >= LEAST_ROUNDS_FOR_PRECISION and relative_half_width(clean) <= limits.precision:
        return "precision"
    if over and is_enough(clean, len(seconds), limits.budget):
        return "budget"
    return "disturbed" if spent >= longest(limits.budget) else ""


def first_calls(
    step: Step, clock: Clock, lengths: Sequence[int], most_seconds: float
) -> Tuple[List[float], int]:
    """Run calls of growing ``lengths``, in batches; return their seconds and all their batches.

    A call is the last if one of twice its length would take more than ``most_seconds``.
    """
    seconds: List[float] = []
    for length in lengths:
        step.batches_per_step = length
        seconds.append(timed_call(step, clock))
        if 2 * seconds[-1] > most_seconds:
            break
    return seconds, sum(lengths[: len(seconds)])


@dataclass(frozen=True)
class Calibrated:
    """The calls that found the length of a round.

    ``seconds``: of the last calls, which already had that length. ``batches``: of all calls.
    """

    seconds: List[float] = field(default_factory=list)
    batches: int = 0


def target_seconds(budget: float) -> float:
    """Return how long a round should take: shorter if the budget is short."""
    return min(TARGET_ROUND_SECONDS, TARGET_ROUND_SHARE * budget)


def calibrate(
    step: Step, clock: Clock, target: float = TARGET_ROUND_SECONDS, most_seconds: float = math.inf
) -> Calibrated:
    """Choose ``batches_per_step`` so that a round takes about ``target`` seconds.

    If background workers deliver batches in bursts, it is a multiple of the burst; otherwise some
    rounds would wait for a burst and others would not. If a burst takes longer than
    ``most_seconds`` and its chunks take similar times, a round is a chunk.
    """
    batches, used = step.loading.burst, 0
    while True:
        step.batches_per_step = batches
        calls = [timed(step, clock)]
        if target / 2 <= calls[0] < MOST_OF_A_DISTURBANCE * target:
            # A single disturbed call must not end the search with far too short rounds.
            calls.append(timed(step, clock))
        used += batches * len(calls)
        seconds = min(calls)
        if seconds >= target / 2 or batches >= LARGEST_BATCHES_PER_STEP:
            break
        growth = min(10.0, target / seconds) if seconds > 0 else 10.0
        batches = min(LARGEST_BATCHES_PER_STEP, math.ceil(batches * growth))
    if batches == step.loading.burst > 1 and seconds > most_seconds:
        return split_burst(step, clock, Calibrated(calls, used), most_seconds)
    wanted = batches * target / seconds if seconds > 0 else batches
    bursts = min(LARGEST_BATCHES_PER_STEP, max(1, round(wanted / step.loading.burst)))
    step.batches_per_step = bursts * step.loading.burst
    return Calibrated(calls if step.batches_per_step == batches else [], used)


def split_burst(step: Step, clock: Clock, burst: Calibrated, most_seconds: float) -> Calibrated:
    """Choose a chunk of a burst for a round, if the chunks of a burst take similar times.

    Then the workers are ahead, and no round waits for them. This is known only after the batches
    that they had prepared before are used up.
    """
    if step.loading.burst + burst.batches < step.loading.prefetched:
        return burst
    chunks = min(step.loading.burst, math.ceil(min(burst.seconds) / most_seconds))
    step.batches_per_step = step.loading.burst // chunks
    calls = math.ceil(step.loading.burst / step.batches_per_step)
    seconds = [timed(step, clock) for _ in range(calls)]
    used = burst.batches + calls * step.batches_per_step
    if max(seconds) <= MOST_UNLIKE * median(seconds):
        return Calibrated(seconds, used)
    step.batches_per_step = step.loading.burst
    return Calibrated(burst.seconds, used)


@dataclass(frozen=True)
class Dropped:
    """The seconds of the dropped rounds, and what ended the warm-up.

    ``ended_by``: 'steady' (rounds no longer got faster), 'most' (the largest number of rounds) or
    'budget' (the share of the budget was used up).
    """

    seconds: List[float]
    ended_by: str


def warm_up(
    step: Step,
    clock: Clock,
    most_seconds: float = math.inf,
    before: Sequence[float] = (),
    used: int = 0,
    first: Optional[float] = None,
) -> Dropped:
    """Run and drop rounds: as many as the original program drops, and until none gets faster.

    This also uses up the batches that background workers had prepared. After ``most_seconds``, one
    round and those batches are enough. ``before``: the rounds that have been run already. ``used``:
    the batches of all calls so far. ``first``: the time of a first call that was as long as a
    round; it counts as dropped.
    """
    seconds = list(before)
    waiting = max(0, step.loading.prefetched - used)
    prepared = len(seconds) + math.ceil(waiting / step.batches_per_step)
    earlier = [] if first is None else [first]
    # One value shows no trend.
    least = max(max(2, step.rounds.dropped) - len(earlier), prepared)
    while True:
        enough = len(seconds) >= least
        if enough and not still_falling([*earlier, *seconds]):
            return Dropped(seconds, "steady")
        if len(seconds) >= least + MOST_EXTRA_WARM_UP:
            return Dropped(seconds, "most")
        if len(seconds) >= max(1, prepared) and math.fsum(seconds) >= most_seconds:
            return Dropped(seconds, "budget")
        seconds.append(timed_call(step, clock))


def canary_times(canary: Optional[Callable[[], None]], clock: Clock, count: int) -> List[float]:
    """Return ``count`` times of the canary, after a few dropped ones."""
    if canary is None:
        return []
    times = [timed(canary, clock) for _ in range(CANARY_WARM_UP + count)]
    return times[CANARY_WARM_UP:]


def batch_latencies(step: Step, clock: Clock, budget: float) -> Tuple[List[float], int]:
    """Return the seconds per batch of 10 to 200 calls, and how many batches a call has.

    It is one batch, or more if one takes too short a time for the timer.
    """
    chosen = step.batches_per_step
    least = LEAST_OF_TIMER * median(timed(_nothing, clock) for _ in range(TIMER_SAMPLES))
    step.batches_per_step = batches = 1
    try:
        step()
        while batches < chosen and timed(step, clock) < least:
            step.batches_per_step = batches = min(chosen, 2 * batches)
        seconds: List[float] = []
        while len(seconds) < LEAST_LATENCY_SAMPLES or (
            len(seconds) < MOST_LATENCY_SAMPLES
            and math.fsum(seconds) < budget * LATENCY_SHARE_OF_BUDGET
        ):
            seconds.append(timed(step, clock))
        return [value / batches for value in seconds], batches
    finally:
        step.batches_per_step = chosen


def _nothing() -> None:
    """Do nothing."""


def steady_rate(work: Work, clock: Clock, ahead: float, most_seconds: float = math.inf) -> float:
    """Return the amount per second of repeated runs, after the amount ``ahead`` is used up.

    After ``most_seconds`` the measurement starts even if some is left. If the latest run takes much
    longer than that, and too long to repeat, its rate is the result.
    """
    work.prepare()
    waiting, start = ahead, clock()
    while waiting > 0 and clock() - start < most_seconds:
        seconds = timed(work.run, clock)
        if seconds > max(MUCH_LONGER * most_seconds, PEAK_SECONDS):
            return work.amount / seconds
        waiting -= work.amount
    runs, spent = 0, 0.0
    while spent < PEAK_SECONDS:
        spent += timed(work.run, clock)
        runs += 1
        if spent <= 0:
            break
    return runs * work.amount / spent if spent > 0 else math.inf


def best_rate(work: Work, clock: Clock) -> float:
    """Return the highest amount per second of repeated runs; the first one is dropped."""
    work.run()
    best = math.inf
    spent = 0.0
    while spent < PEAK_SECONDS:
        seconds = timed(work.run, clock)
        best = min(best, seconds)
        spent += seconds
        if seconds <= 0:
            break
    return work.amount / best if best > 0 else math.inf
