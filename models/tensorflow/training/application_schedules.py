"""Learning rates of the TensorFlow 2 CNN application: update number in, rate out.

The schedules and warm-ups are those of Graphcore's TensorFlow 2 CNN program. Each function here
returns a function of the update, counted from 0; :class:`LearningRate` has them wrap each other in
the order schedule, warm-up, staircase.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from typing import Callable, Sequence, Tuple

#: Update number, counted from 0 -> learning rate.
Rate = Callable[[int], float]


@dataclass(frozen=True)
class LearningRate:
    """The rate of each weight update, by a schedule with a warm-up and a staircase.

    The schedule is multiplied by ``global_batch_size``, except the ``values`` of stepped.
    """

    global_batch_size: int
    updates_per_epoch: int
    schedule: str = "const"
    initial_learning_rate: float = 1e-4
    epochs_to_total_decay: float = 0.0
    end_learning_rate_ratio: float = 0.0
    power: float = 1.0
    boundaries: Tuple[float, ...] = ()
    values: Tuple[float, ...] = ()
    warmup_mode: str = ""
    warmup_epochs: float = 0.0
    staircase: bool = False

    def check(self) -> None:
        """Raise ValueError for values without meaning, naming the option and the rule."""
        if self.power < 0 or self.end_learning_rate_ratio < 0:
            raise ValueError(
                f"power={self.power:g} or end_learning_rate_ratio="
                f"{self.end_learning_rate_ratio:g} of the schedule is below 0"
            )
        if self.schedule == "stepped":
            self._check_steps()
        elif self.schedule != "const" and self._decay_updates < 1:
            raise ValueError(
                f"the {self.schedule} schedule needs epochs_to_total_decay of at least one weight "
                f"update, not {self.epochs_to_total_decay:g} epochs of {self.updates_per_epoch}"
            )
        if self.warmup_epochs < 0 or (self.warmup_epochs and not self.warmup_mode):
            raise ValueError(
                f"warmup_epochs={self.warmup_epochs:g}: a warm-up has 0 or more epochs and a "
                "warmup_mode, shift or mask"
            )

    def _check_steps(self) -> None:
        if len(self.values) != len(self.boundaries) + 1:
            raise ValueError(
                f"a stepped schedule has one more of values than of boundaries, not "
                f"{len(self.values)} values for {len(self.boundaries)} boundaries"
            )
        if list(self.boundaries) != sorted(self.boundaries):
            raise ValueError(f"boundaries={list(self.boundaries)} of the schedule do not rise")

    def of(self, update: int) -> float:
        """Return the rate of a weight update, counted from 0."""
        rate = self._schedule()
        if self.warmup_mode:
            warmup = int(self.warmup_epochs * self.updates_per_epoch)
            rate = warmed(rate, self.warmup_mode, warmup)
        if self.staircase:
            rate = staircase(rate, self.updates_per_epoch)
        return rate(update)

    def _schedule(self) -> Rate:
        if self.schedule == "stepped":
            boundaries = [int(epoch * self.updates_per_epoch) for epoch in self.boundaries]
            return stepped(boundaries, self.values)
        if self.schedule == "cosine":
            return cosine(self._first_rate, int(self._decay_updates))
        if self.schedule == "polynomial":
            return polynomial(
                self._first_rate, self._decay_updates, self.end_learning_rate_ratio, self.power
            )
        return const(self._first_rate)

    @property
    def _first_rate(self) -> float:
        return self.initial_learning_rate * self.global_batch_size

    @property
    def _decay_updates(self) -> float:
        return self.epochs_to_total_decay * self.updates_per_epoch


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
