"""The statistics of rounds: quantiles, the interval of a median, ratios. Pure functions."""

from __future__ import annotations

import math
from statistics import fmean, median
from typing import List, Optional, Sequence, Tuple

from ipubench.plugins.record.structs import Latency, Throughput

CONFIDENCE = 0.95
#: A value that is lower by more than this is a new minimum.
FALLING = 0.02


def quantile(values: Sequence[float], q: float) -> float:
    """Return the q-quantile by linear interpolation (NumPy's default). Needs at least one value."""
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def median_ranks(n: int) -> Optional[Tuple[int, int]]:
    """Return the ranks (from 0) of the order statistics that enclose the median.

    Distribution-free: the number of values below the median is binomial(n, 1/2); each tail keeps
    at most (1 - CONFIDENCE) / 2 (Conover, Practical Nonparametric Statistics, 3.2). None where n
    is too small for any such pair (below 6 at 95%).
    """
    low, below = -1, _binomial(n, 0)
    while below <= (1 - CONFIDENCE) / 2:
        low += 1
        below += _binomial(n, low + 1)
    return None if low < 0 else (low, n - 1 - low)


def _binomial(n: int, k: int) -> float:
    log = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(log - n * math.log(2))


def median_interval(values: Sequence[float]) -> Tuple[float, float]:
    """Return a confidence interval of the median; if n is too small, the smallest and largest."""
    ordered = sorted(values)
    low, high = median_ranks(len(ordered)) or (0, -1)
    return ordered[low], ordered[high]


def relative_half_width(values: Sequence[float]) -> float:
    """Return half the width of the median's interval over the median."""
    low, high = median_interval(values)
    return (high - low) / 2 / median(values)


def throughput(seconds: Sequence[float], items: float, unit: str) -> Throughput:
    """Return the throughput of rounds with ``items`` items each; ``unit`` is the items' plural.

    ``mean`` is the arithmetic mean of the rounds' rates, as the original programs print it; ``low``
    and ``high`` are the 95% interval of the median.
    """
    fastest, slowest = median_interval(seconds)
    rates = [items / value for value in seconds]
    middle, low, high = items / median(seconds), items / slowest, items / fastest
    return Throughput(
        unit=f"{unit}/s",
        spread=spread(middle, low, high),
        median=middle,
        low=low,
        high=high,
        mean=fmean(rates),
        min=min(rates),
        max=max(rates),
    )


def spread(middle: float, low: float, high: float) -> float:
    """Return half the interval's width over its middle, which the table shows as ±."""
    return (high - low) / 2 / middle


def latency(seconds: Sequence[float], source: str, batches: Optional[int] = None) -> Latency:
    """Return the quantiles of seconds per batch, in milliseconds.

    ``source``: which calls were timed; ``batches``: per call, if there are several.
    """
    p50, p90, p99 = (1000 * quantile(seconds, percent / 100) for percent in (50, 90, 99))
    return Latency(
        source=source, p50_ms=p50, p90_ms=p90, p99_ms=p99, samples=len(seconds), batches=batches
    )


def still_falling(seconds: Sequence[float]) -> bool:
    """Return whether the newest value is below the previous minimum by more than 2%."""
    if len(seconds) < 2:
        return False
    earlier: List[float] = list(seconds[:-1])
    return seconds[-1] < (1 - FALLING) * min(earlier)
