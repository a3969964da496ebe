"""Statistical inference from processes: is the code slower, and how certain is it? Pure functions.

A *cost* is the logarithm of a lower-is-better metric of one process: seconds per item,
milliseconds, bytes. The difference of two mean costs is the logarithm of a ratio; above 0, the code
has become worse. Processes are the independent unit (Kalibera and Jones, Quantifying Performance
Changes with Effect Size Confidence Intervals, 2012, arXiv 2007.10899).
"""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass
from typing import List, Sequence, Tuple

from ipubench.plugins.gate.student import student_quantile
from ipubench.plugins.record.verdict import IMPROVED, PASS, REGRESSED

#: Confidence of the interval that is shown.
CONFIDENCE = 0.95
#: The assumed spread weighs as much as this many measured processes.
ASSUMED_DEGREES = 3
#: One value in this many is trimmed at each end.
TRIMMED = 5
#: Fewer processes cannot be halved usefully; more have too many possible splits.
LEAST_SPLIT, MOST_SPLIT = 4, 14


@dataclass(frozen=True)
class Effect:
    """The difference of the mean costs: above 0, the code is slower now."""

    change: float
    error: float  # standard error
    degrees: float  # of freedom of that error

    def bound(self, confidence: float) -> float:
        """Return the value that the true change exceeds with this (one-sided) confidence."""
        return self.change - self.error * student_quantile(confidence, self.degrees)

    def interval(self) -> Tuple[float, float]:
        """Return the two-sided 95% confidence interval of the change."""
        half = self.error * student_quantile((1 + CONFIDENCE) / 2, self.degrees)
        return self.change - half, self.change + half


def effect(before: Sequence[float], now: Sequence[float], assumed: float) -> Effect:
    """Return the difference of the mean costs, ``now`` minus ``before``.

    Means are trimmed by a fifth at each end and variances winsorised, so that one disturbed process
    does not decide (Yuen, The two-sample trimmed t for unequal population variances, Biometrika
    1974). The variance is pooled from both sides and from an ``assumed`` standard deviation between
    processes of equal code, weighted like a few processes. Without it, two or three processes that
    happen to agree would give a variance of zero (the moderated t statistic; Smyth, Linear models
    and empirical Bayes methods, 2004).
    """
    one, other = Trimmed.of(before), Trimmed.of(now)
    degrees = one.count + other.count - 2 + ASSUMED_DEGREES
    squares = one.squares + other.squares + ASSUMED_DEGREES * assumed**2
    error = math.sqrt(squares / degrees * (1 / one.count + 1 / other.count))
    return Effect(other.mean - one.mean, error, degrees)


@dataclass(frozen=True)
class Trimmed:
    """Values without their smallest and largest fifth; ``of`` needs at least one."""

    mean: float
    squares: float  # of the deviations of ``winsorised``
    count: int  # that were kept
    winsorised: List[float]  # with the last kept value in place of those cut off

    @classmethod
    def of(cls, values: Sequence[float]) -> Trimmed:
        ordered = sorted(values)
        cut = len(ordered) // TRIMMED
        kept = ordered[cut : len(ordered) - cut]
        winsorised = [kept[0]] * cut + kept + [kept[-1]] * cut
        middle = statistics.fmean(winsorised)
        squares = math.fsum((value - middle) ** 2 for value in winsorised)
        return cls(statistics.fmean(kept), squares, len(kept), winsorised)


def noise_floor(costs: Sequence[float], others: int) -> float:
    """Return the case's A/A noise floor: how far equal code differs from ``others`` processes.

    Splits the processes into halves in all ways and takes the median difference of the halves'
    means. The result is scaled to a comparison of all of them with ``others`` more, because a
    difference of means shrinks with the root of their numbers. 0 for fewer than four processes.
    """
    # Winsorised: otherwise one disturbed process would excuse every change.
    values = Trimmed.of(costs[:MOST_SPLIT]).winsorised
    if len(values) < LEAST_SPLIT:
        return 0.0
    half = len(values) // 2
    total = math.fsum(values)
    found: List[float] = []
    for chosen in itertools.combinations(values, half):
        part = math.fsum(chosen)
        found.append(abs(part / half - (total - part) / (len(values) - half)))
    of_halves = 1 / half + 1 / (len(values) - half)
    return statistics.median(found) * math.sqrt((1 / len(costs) + 1 / others) / of_halves)


def least_change(
    before: Sequence[float], others: int, assumed: float, allowed: float, level: float
) -> float:
    """Return the change that the gate finds in most comparisons with ``others`` processes.

    It finds 95% of them if processes differ exactly as much as those ``before``. ``allowed`` and
    ``level`` are those of :func:`decide`; all changes are logarithms.
    """
    noise = effect(before, [before[number % len(before)] for number in range(others)], assumed)
    certain = noise.error * student_quantile(1 - level, noise.degrees)
    return max(allowed, certain) + noise.error * student_quantile(CONFIDENCE, noise.degrees)


def corrected(false_alarms: float, cases: int) -> float:
    """Return the level of one test, so that all tests together keep ``false_alarms`` (Bonferroni).

    Holm's procedure finds more, but needs all results at once; we decide case by case.
    """
    return false_alarms / max(1, cases)


def decide(found: Effect, allowed: float, detectable_change: float, level: float) -> str:
    """Return a verdict, or '' if more measurements are needed.

    A case passes once ``detectable_change`` is excluded with 95% confidence; ``allowed`` is the
    tolerated growth; both are logarithms. ``level`` is the false-alarm rate of one look.
    """
    if found.change > allowed and found.bound(1 - level) > 0:
        return REGRESSED
    if found.change < -allowed and found.bound(level) < 0:
        return IMPROVED
    if found.change <= allowed and found.interval()[1] < detectable_change:
        return PASS
    return ""
