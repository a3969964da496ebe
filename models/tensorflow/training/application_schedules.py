"""Learning rates of the TensorFlow 2 CNN application: update number in, rate out.

The schedules and warm-ups are those of Graphcore's TensorFlow 2 CNN program. Each function here
returns a function of the update, counted from 0; they wrap each other in the order schedule,
warm-up, staircase.
"""

from __future__ import annotations

import bisect
import math
from typing import Callable, Sequence

#: Update number, counted from 0 -> learning rate.
Rate = Callable[[int], float]
SCHEDULES = ("const", "cosine", "stepped", "polynomial")
WARMUPS = ("shift", "mask")


def const(rate: float) -> Rate:
    """Return the schedule that is ``rate`` throughout."""
    return lambda update: rate


def cosine(rate: float, updates: int) -> Rate:
    """Return rate / 2 * (1 + cos(pi * t / updates)), 0 from ``updates`` on."""
    return lambda update: rate / 2.0 * (1.0 + math.cos(math.pi * min(update, updates) / updates))


def polynomial(rate: float, updates: float, end_ratio: float, power: float) -> Rate:
    """Return (rate - end) * (1 - t / updates)^power + end, where end = ``end_ratio`` * rate.

    It is ``end`` from ``updates`` on.
    """
    end = end_ratio * rate

    def value(update: int) -> float:
        left = 1.0 - min(update, updates) / updates
        return float((rate - end) * left**power + end)

    return value


def stepped(boundaries: Sequence[int], values: Sequence[float]) -> Rate:
    """Return values[i] after boundaries[i - 1] and up to and with boundaries[i]."""
    return lambda update: values[bisect.bisect_left(boundaries, update)]


def warmed(rate: Rate, mode: str, updates: int) -> Rate:
    """Return ``rate`` with a warm-up: a factor (t + 1) / (updates + 1) in the first ``updates``.

    ``shift``: the factor is of the schedule's first rate, and the schedule starts after it.
    ``mask``: the schedule runs meanwhile.
    """
    delay = updates if mode == "shift" else 0

    def value(update: int) -> float:
        factor = min(1.0, (update + 1) / (updates + 1))
        return factor * rate(max(0, update - delay))

    return value


def staircase(rate: Rate, updates_per_epoch: int) -> Rate:
    """Return ``rate``, held within an epoch at its value at the epoch's beginning."""
    return lambda update: rate(update // updates_per_epoch * updates_per_epoch)
