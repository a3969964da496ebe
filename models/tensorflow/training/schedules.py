"""Learning rates over a run, as plain numbers: update number in, rate out.

The curves and warm-ups are those of Graphcore's two TensorFlow CNN programs. Updates count from 0;
after the end of a run the rate stays constant.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from typing import Callable, Sequence, Tuple

DROPS = (0.3, 0.6, 0.8, 0.9)
#: Exponents N of the rate 2^N * global batch size.
EXPONENTS = {"SGD": -8, "momentum": -11}
EFFICIENTNET_EXPONENTS = {"SGD": -7, "momentum": -10, "RMSprop": -14}

#: Update -> the rate without warm-up.
Curve = Callable[[int], float]
#: Update -> (factor of the rate, update whose rate it is).
Warmup = Callable[[int], Tuple[float, int]]


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


def at_once(update: int) -> Tuple[float, int]:
    """Warm up in no time."""
    return 1.0, update


@dataclass(frozen=True)
class Schedule:
    """A rate that follows a curve, after a warm-up; it changes every ``stair`` updates."""

    curve: Curve
    warmup: Warmup = at_once
    stair: int = 1

    def rate(self, update: int) -> float:
        """Return the learning rate of an update, counted from 0."""
        factor, update = self.warmup(update // self.stair * self.stair)
        return factor * self.curve(update)


# --- warm-ups --------------------------------------------------------------------------------


def rising(warmup: float) -> Warmup:
    """Multiply the curve by update / ``warmup``, which may be longer than the run."""
    return lambda update: (min(1.0, update / warmup) if warmup else 1.0, update)


def masked(warmup: int) -> Warmup:
    """Multiply the curve by (update + 1) / (warmup + 1)."""
    return lambda update: (min(1.0, (update + 1) / (warmup + 1)), update)


def shifted(warmup: int) -> Warmup:
    """Multiply the curve's first rate in the same way; the curve starts after the warm-up."""
    return lambda update: (min(1.0, (update + 1) / (warmup + 1)), max(0, update - warmup))


# --- curves ----------------------------------------------------------------------------------


def constant(base: float) -> Curve:
    """Return ``base``."""
    return lambda update: base


def cosine(base: float, total: int) -> Curve:
    """Return base / 2 * (1 + cos(pi * update / total)) (Loshchilov and Hutter, 2017, arXiv
    1608.03983).
    """
    return lambda update: base / 2.0 * (1.0 + math.cos(math.pi * min(update, total) / total))


def polynomial(
    base: float, end: float, power: float, total: float, constant_until: float = -1.0
) -> Curve:
    """Return (base - end) * (1 - t)^power + end; t runs from 0 to 1 until update ``total``.

    Up to update ``constant_until`` the rate is ``base``, and t runs from there.
    """
    start = max(0.0, constant_until)

    def curve(update: int) -> float:
        reached = min(update, total)
        if reached <= constant_until:
            return base
        done = (reached - start) / (total - start)
        return float((base - end) * (1.0 - done) ** power + end)

    return curve


def dropping(base: float, decay: float, total: int, places: Sequence[float]) -> Curve:
    """Return base * decay^k, where k counts the ``places`` (shares of the run) reached."""

    def curve(update: int) -> float:
        done = min(update, total) / total
        return float(base * decay ** sum(done >= place for place in places))

    return curve


def exponential(base: float, decay: float, total: int, drops: int) -> Curve:
    """Return base * decay^k after k of ``drops`` equal parts of the run."""
    return lambda update: float(base * decay ** (min(update, total) * drops // total))


def stepped(values: Sequence[float], boundaries: Sequence[int]) -> Curve:
    """Return values[i] after boundaries[i - 1] up to boundaries[i], inclusive."""
    return lambda update: values[bisect.bisect_left(boundaries, update)]
