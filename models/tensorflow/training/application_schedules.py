"""Learning rates of the TensorFlow 2 CNN application: update number in, rate out.

The schedules and warm-ups are those of Graphcore's TensorFlow 2 CNN program.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from typing import Tuple


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
        """Raise ValueError for invalid values, with the option and the rule."""
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
                f"a stepped schedule needs one value more than boundaries, not "
                f"{len(self.values)} values for {len(self.boundaries)} boundaries"
            )
        if list(self.boundaries) != sorted(self.boundaries):
            raise ValueError(f"boundaries={list(self.boundaries)} of the schedule do not rise")

    def of(self, update: int) -> float:
        """Return the rate of a weight update, counted from 0.

        A staircase keeps it constant within an epoch. During warm-up there is a factor (t + 1) /
        (updates + 1): ``shift`` applies it to the schedule's first rate, and the schedule starts
        after it; ``mask`` applies it to the running schedule.
        """
        if self.staircase:
            update = update // self.updates_per_epoch * self.updates_per_epoch
        if not self.warmup_mode:
            return self._scheduled(update)
        warmup = int(self.warmup_epochs * self.updates_per_epoch)
        factor = min(1.0, (update + 1) / (warmup + 1))
        delay = warmup if self.warmup_mode == "shift" else 0
        return factor * self._scheduled(max(0, update - delay))

    def _scheduled(self, update: int) -> float:
        """Return the schedule's rate.

        stepped: values[i] after boundaries[i - 1] up to boundaries[i], inclusive; cosine: rate / 2
        * (1 + cos(pi * t / updates)); polynomial: (rate - end) * (1 - t / updates)^power + end.
        After ``updates``, the last two stay constant.
        """
        if self.schedule == "stepped":
            boundaries = [int(epoch * self.updates_per_epoch) for epoch in self.boundaries]
            return self.values[bisect.bisect_left(boundaries, update)]
        rate = self.initial_learning_rate * self.global_batch_size
        if self.schedule == "cosine":
            updates = int(self._decay_updates)
            return rate / 2.0 * (1.0 + math.cos(math.pi * min(update, updates) / updates))
        if self.schedule == "polynomial":
            left = 1.0 - min(update, self._decay_updates) / self._decay_updates
            end = self.end_learning_rate_ratio * rate
            return float((rate - end) * left**self.power + end)
        return rate

    @property
    def _decay_updates(self) -> float:
        return self.epochs_to_total_decay * self.updates_per_epoch
