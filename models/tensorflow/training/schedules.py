"""Learning rates over a run, as plain numbers: update number in, rate out.

The schedules are those of Graphcore's TensorFlow CNN training program. Updates count from 0; after
the end of a run the rate stays constant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Dict, Optional, Tuple, Type

DROPS = (0.3, 0.6, 0.8, 0.9)
#: Exponents N of the rate 2^N * global batch size.
EXPONENTS = {"SGD": -8, "momentum": -11}
EFFICIENTNET_EXPONENTS = {"SGD": -7, "momentum": -10, "RMSprop": -14}


def updates_per_epoch(images: int, global_batch: int) -> int:
    """Return the complete updates in a pass over ``images``; at least 1 for a small set."""
    return max(1, images // global_batch)


def base_rate(exponent: int, global_batch: int) -> float:
    """Return 2^exponent * global batch size. Raises ValueError if that is too large."""
    try:
        return math.ldexp(global_batch, exponent)
    except OverflowError:
        raise ValueError(
            f"the learning rate 2^{exponent} * {global_batch} is too large: choose a smaller "
            "base_learning_rate"
        ) from None


def default_exponent(optimiser: str, efficientnet: bool = False) -> int:
    """Return the default exponent of the base rate for an optimiser.

    Raises ValueError if the original program has none.
    """
    exponents = EFFICIENTNET_EXPONENTS if efficientnet else EXPONENTS
    if optimiser not in exponents:
        network = "an EfficientNet" if efficientnet else "this network"
        raise ValueError(
            f"{optimiser} has no default learning rate for {network}: set abs_learning_rate, or "
            f"base_learning_rate, or choose one of {', '.join(exponents)}"
        )
    return exponents[optimiser]


@dataclass(frozen=True)
class Schedule:
    """A rate that falls from ``base`` over ``total`` updates, warmed up in the first ``warmup``.

    During warm-up the schedule's value is multiplied by update / ``warmup``. ``warmup`` may be
    longer than the run.
    """

    base: float
    total: int
    warmup: float = 0.0

    def rate(self, update: int) -> float:
        """Return the learning rate of an update, counted from 0."""
        warm = min(1.0, update / self.warmup) if self.warmup else 1.0
        return warm * self._value(min(update, self.total))

    def _value(self, update: int) -> float:
        raise NotImplementedError


@dataclass(frozen=True)
class Stepped(Schedule):
    """base * decay^k, where k counts the ``drops`` (fractions of the run) reached."""

    decay: float = 0.1
    drops: Tuple[float, ...] = DROPS

    def _value(self, update: int) -> float:
        return float(self.base * self.decay ** sum(update / self.total >= d for d in self.drops))


@dataclass(frozen=True)
class Cosine(Schedule):
    """base / 2 * (1 + cos(pi * update / total)) (Loshchilov and Hutter, 2017, arXiv 1608.03983)."""

    def _value(self, update: int) -> float:
        return self.base / 2.0 * (1.0 + math.cos(math.pi * update / self.total))


@dataclass(frozen=True)
class Exponential(Schedule):
    """base * decay^k after k of ``drops`` equal parts of the run."""

    decay: float = 0.97
    drops: int = 146

    def _value(self, update: int) -> float:
        return float(self.base * self.decay ** (update * self.drops // self.total))


@dataclass(frozen=True)
class Polynomial(Schedule):
    """(base - end) * (1 - t)^power + end; t runs from 0 to 1 between warm-up and the run's end.

    The last rate is ``end``, or without it ``end_ratio`` of the base rate.
    """

    power: float = 2.0
    end_ratio: float = 1e-5
    end: Optional[float] = None

    def _value(self, update: int) -> float:
        end = self.end_ratio * self.base if self.end is None else self.end
        if update <= self.warmup:
            return self.base
        done = (update - self.warmup) / (self.total - self.warmup)
        return float((self.base - end) * (1.0 - done) ** self.power + end)


#: By the names of the original program's option.
SCHEDULES: Dict[str, Type[Schedule]] = {
    "stepped": Stepped,
    "cosine": Cosine,
    "exponential": Exponential,
    "polynomial_decay_lr": Polynomial,
}
