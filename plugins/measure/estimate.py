"""The running estimate of a case while it is measured: its rate so far, and the time left."""

from __future__ import annotations

import math
from statistics import median
from typing import Sequence

from ipubench.plugins.measure.disturbance import LEAST_ROUNDS, is_enough, longest
from ipubench.plugins.measure.rounds import LEAST_ROUNDS_FOR_PRECISION, Limits, Rounds
from ipubench.plugins.record.statistics import relative_half_width
from ipubench.plugins.record.text import percent, rate_text
from ipubench.plugins.run.progress import time_left


def estimate_text(
    rounds: Rounds, seconds: Sequence[float], items: float, unit: str, timed_share: float = 1.0
) -> str:
    """Return the rate of the rounds so far, its interval and the time left.

    ``items``: of a round. ``timed_share``: that of the rounds' time; the rest takes time as well.
    """
    limits, clean = rounds.limits, rounds.disturbance.clean(seconds)
    if not is_enough(clean, len(seconds), limits.budget):
        clean = list(seconds)
    spread = relative_half_width(clean) if len(clean) >= LEAST_ROUNDS else math.inf
    shown = f" ±{percent(spread)}" if math.isfinite(spread) else ""
    spent = math.fsum(seconds) + rounds.between
    left = seconds_left(limits, len(seconds), spent, spread) / timed_share
    disturbed = ", disturbed" if limits.steps is None and spent >= limits.budget else ""
    rate = f"{rate_text(items / median(clean))} {unit}/s"
    return f"{rate}{shown}, {time_left(left)}{disturbed}"


def seconds_left(limits: Limits, count: int, spent: float, spread: float) -> float:
    """Return how long the other rounds will take if they are like the first ``count``.

    ``spent``: the seconds so far. ``spread``: half of the interval's width over the median.
    """
    each = spent / count
    if limits.steps is not None:
        rounds: float = limits.steps
    else:
        most = limits.budget if spent < limits.budget else longest(limits.budget)
        # The interval narrows with the square root of the number of rounds.
        precise = count * (spread / limits.precision) ** 2 if limits.precision > 0 else math.inf
        rounds = min(
            max(most / each, LEAST_ROUNDS),
            max(precise, LEAST_ROUNDS_FOR_PRECISION),
        )
    if limits.most is not None:
        rounds = min(rounds, limits.most)
    return max(0.0, each * (rounds - count))
