"""How one case is measured: warm-up, calibration, rounds with a canary before each, the stop rule.

Nothing here knows pytest; ``plugins/measure/meter.py`` does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median
from typing import Callable, List, Optional, Sequence, Tuple

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.machine.frames import left_out
from ipubench.fixtures.runtimes.step import Step, Work
from ipubench.plugins.measure.disturbance import LEAST_ROUNDS, Disturbance, is_enough, longest
from ipubench.plugins.record.pytest_benchmark_adapter import EnoughRounds
from ipubench.plugins.record.statistics import relative_half_width, still_falling

__tracebackhide__ = left_out

Clock = Callable[[], float]
# A round is long against the timer and the scheduler, and short enough for many per budget.
TARGET_ROUND_SECONDS = 0.1
TARGET_ROUND_SHARE = 0.1
LARGEST_BATCHES_PER_STEP = 1 << 20
# Where a call of a fixed number of batches takes a larger share of the budget, it gets fewer.
LONGEST_ROUND_SHARE = 0.2
# A batch that can be lighter is, where it would take so long at the usual share of the peak. It is
# the same for every budget, because it is a part of what is measured.
LONGEST_BATCH_SECONDS = 1.0
# Parts of a burst that takes this much longer than the usual one have waited for the workers.
MOST_UNLIKE = 2.0
# A call that is longer than this many rounds is long by itself.
MOST_OF_A_DISTURBANCE = 5
# The gate compares medians of rounds: of fewer they would be a matter of luck.
LEAST_ROUNDS_FOR_PRECISION = 20
# While rounds still get faster, this many more are dropped at most.
MOST_EXTRA_WARM_UP = 10
# Calibrating and dropped rounds take this share of the budget at most, but for the round at the end
# of it. The first call is not bounded: what it prepares has to be prepared. It is a part of the
# share where the FLOP of its batches alone take as long.
WARM_UP_SHARE = 0.5
CANARY_WARM_UP = 3
CANARIES_AROUND_BACKGROUND_WORK = 20
LEAST_LATENCY_SAMPLES = 10
MOST_LATENCY_SAMPLES = 200
LATENCY_SHARE_OF_BUDGET = 0.1
# A call that is timed for a latency takes so many times what timing nothing takes.
LEAST_OF_TIMER = 50
TIMER_SAMPLES = 100
# Of a run so many times longer than what may disturb it, hardly any is disturbed.
MUCH_LONGER = 10.0
# A measured ceiling is the best of several tries within this time.
PEAK_SECONDS = 0.5


@dataclass(frozen=True)
class Limits:
    """When to stop: exactly ``steps`` rounds, or at ``precision`` or after ``budget`` seconds.

    In any case after ``most`` rounds, where the work has an end.
    """

    budget: float = 5.0
    precision: float = 0.01
    steps: Optional[int] = None
    most: Optional[int] = None


@dataclass
class Rounds:
    """The rounds of one case as they come to be."""

    limits: Limits
    clock: Clock
    canary: Optional[Callable[[], None]]
    disturbance: Disturbance = field(default_factory=lambda: Disturbance(None))
    canaries: List[float] = field(default_factory=list)
    stopped_by: str = ""
    #: Seconds spent between the rounds: on canaries and on reading what others take.
    between: float = 0.0

    def before_round(self, seconds: List[float]) -> None:
        """End the rounds when the rule says so, given those so far; else time the canary."""
        self.between += timed(self.disturbance.read, self.clock)
        self.stopped_by = stop_reason(seconds, self.limits, self.between, self.disturbance.clean)
        if self.stopped_by:
            raise EnoughRounds
        if self.canary is not None:
            self.canaries.append(timed(self.canary, self.clock))
            self.between += self.canaries[-1]


def timed(work: Callable[[], object], clock: Clock) -> float:
    """Return the seconds that one call takes."""
    start = clock()
    work()
    return clock() - start


def timed_call(step: Step, clock: Clock) -> float:
    """Return the seconds that one call of a step takes.

    Raises CaseError where the device's clock stood still: then the call has returned before the
    device worked, and rates made of it would be infinite.
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
    """Return why no further round is wanted, or ''.

    The reasons are 'steps', 'end', 'precision', 'budget' and, where the budget was stretched
    and others still disturbed too many rounds, 'disturbed'. ``clean_of`` leaves disturbed rounds
    out. The seconds ``between`` rounds count towards the budget. With many rounds the rule looks
    only at every twentieth part of them, because looking costs more the more there are.
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
    """Run the first call, and longer ones up to the length that a round is to have.

    A call of which twice as much would take more than ``most_seconds`` is the last. Returns the
    seconds of each, and the batches of all.
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
    """How the length of a round was found.

    ``seconds`` are those of its last calls, which ran what was chosen and so were rounds already.
    ``batches`` are those of all its calls.
    """

    seconds: List[float] = field(default_factory=list)
    batches: int = 0


def target_seconds(budget: float) -> float:
    """Return how long a round should take; a short budget has shorter ones, and so is kept."""
    return min(TARGET_ROUND_SECONDS, TARGET_ROUND_SHARE * budget)


def calibrate(
    step: Step, clock: Clock, target: float = TARGET_ROUND_SECONDS, most_seconds: float = math.inf
) -> Calibrated:
    """Choose ``batches_per_step`` so that a round takes about ``target`` seconds.

    With background workers that hand over batches in bursts it stays a multiple of the burst, or
    rounds would alternate between waiting and not waiting. Where one burst takes longer than
    ``most_seconds`` and nothing alternates, a round is a part of it.
    """
    batches, used = step.burst, 0
    while True:
        step.batches_per_step = batches
        calls = [timed(step, clock)]
        if target / 2 <= calls[0] < MOST_OF_A_DISTURBANCE * target:
            # One call that something disturbed must not end the search with far too short rounds.
            calls.append(timed(step, clock))
        used += batches * len(calls)
        seconds = min(calls)
        if seconds >= target / 2 or batches >= LARGEST_BATCHES_PER_STEP:
            break
        growth = min(10.0, target / seconds) if seconds > 0 else 10.0
        batches = min(LARGEST_BATCHES_PER_STEP, math.ceil(batches * growth))
    if batches == step.burst > 1 and seconds > most_seconds:
        return part_of_a_burst(step, clock, Calibrated(calls, used), most_seconds)
    wanted = batches * target / seconds if seconds > 0 else batches
    bursts = min(LARGEST_BATCHES_PER_STEP, max(1, round(wanted / step.burst)))
    step.batches_per_step = bursts * step.burst
    return Calibrated(calls if step.batches_per_step == batches else [], used)


def part_of_a_burst(step: Step, clock: Clock, whole: Calibrated, most_seconds: float) -> Calibrated:
    """Choose a part of a burst for a round, if the parts of one take times that are alike.

    Then the workers are ahead, and no round waits for them. What they had prepared has been used
    by now, or the parts would say nothing.
    """
    if step.burst + whole.batches < step.prefetched_batches:
        return whole
    parts = min(step.burst, math.ceil(min(whole.seconds) / most_seconds))
    step.batches_per_step = step.burst // parts
    calls = math.ceil(step.burst / step.batches_per_step)
    seconds = [timed(step, clock) for _ in range(calls)]
    used = whole.batches + calls * step.batches_per_step
    if max(seconds) <= MOST_UNLIKE * median(seconds):
        return Calibrated(seconds, used)
    step.batches_per_step = step.burst
    return Calibrated(whole.seconds, used)


@dataclass(frozen=True)
class Dropped:
    """Rounds that were run and dropped, in seconds, and why no further one was.

    ``ended_by``: 'steady', where none got faster any more; 'most', where as many were dropped as
    may be; or 'budget', where they had taken their share of it.
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

    Batches that background workers prepared before the first round are used up as well. Without
    these, after ``most_seconds`` one round is enough. ``before`` are rounds that have been run, and
    ``used`` are the batches of every call before these, which workers had prepared too. ``first``
    is the time of a first call that was as long as a round: it counts as dropped, and the next one
    may be as fast already.
    """
    seconds = list(before)
    waiting = max(0, step.prefetched_batches - used)
    prepared = len(seconds) + math.ceil(waiting / step.batches_per_step)
    earlier = [] if first is None else [first]
    # Two at least: one value shows no trend.
    least = max(max(2, step.dropped) - len(earlier), prepared)
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
    """Return ``count`` times of the canary, after a few that are dropped."""
    if canary is None:
        return []
    times = [timed(canary, clock) for _ in range(CANARY_WARM_UP + count)]
    return times[CANARY_WARM_UP:]


def batch_latencies(step: Step, clock: Clock, budget: float) -> Tuple[List[float], int]:
    """Return the seconds per batch of calls, and how many batches a call has.

    Calls are 10 to 200, by a share of the budget. They have one batch each; more where the timer
    would take a part of so short a time.
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
    """Take no time."""


def steady_rate(work: Work, clock: Clock, ahead: float, most_seconds: float = math.inf) -> float:
    """Return the amount per second of repeated runs, after the ``ahead`` that was waiting.

    What was waiting is given up after ``most_seconds``, but for the run at their end; where that is
    much longer, and too long to be repeated, it is the rate's.
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
    """Return the highest amount per second of repeated runs, the first one dropped."""
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
