"""Inference from processes to code: is it slower, and how sure is that? Pure functions.

A *cost* is the logarithm of a figure of one process of which less is better: seconds per item,
milliseconds, bytes. The difference of two mean costs is then the logarithm of a ratio, and above 0
the code has become worse. Processes are the independent unit (Kalibera and Jones, Quantifying
Performance Changes with Effect Size Confidence Intervals, 2012, arXiv 2007.10899).
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
#: Processes that the assumed spread counts for, beside those that were measured.
ASSUMED_DEGREES = 3
#: One in so many values is cut off at each end.
TRIMMED = 5
#: Fewer processes have no halves to speak of; of more not all are split, there are too many ways.
LEAST_SPLIT, MOST_SPLIT = 4, 14


@dataclass(frozen=True)
class Effect:
    """How much more the code costs now than before: the difference of mean costs."""

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
    """Return the difference of mean costs, ``now`` against ``before``; one process each or more.

    Means are trimmed by a fifth at each end and variances winsorised, so that one process that the
    machine disturbed does not decide (Yuen, The two-sample trimmed t for unequal population
    variances, Biometrika 1974). The variance is pooled from both sides and from an ``assumed``
    standard deviation between processes of equal code that counts for a few processes: two or three
    that happen to agree must not make it zero (the moderated t statistic; Smyth, Linear models and
    empirical Bayes methods, 2004).
    """
    one, other = Trimmed.of(before), Trimmed.of(now)
    degrees = one.count + other.count - 2 + ASSUMED_DEGREES
    squares = one.squares + other.squares + ASSUMED_DEGREES * assumed**2
    error = math.sqrt(squares / degrees * (1 / one.count + 1 / other.count))
    return Effect(other.mean - one.mean, error, degrees)


@dataclass(frozen=True)
class Trimmed:
    """Values of which the smallest and the largest fifth were cut off; ``of`` needs one or more."""

    mean: float
    squares: float  # of the deviations of ``whole``
    count: int  # that were kept
    whole: List[float]  # with the last kept value in place of those cut off

    @classmethod
    def of(cls, values: Sequence[float]) -> Trimmed:
        ordered = sorted(values)
        cut = len(ordered) // TRIMMED
        kept = ordered[cut : len(ordered) - cut]
        whole = [kept[0]] * cut + kept + [kept[-1]] * cut
        middle = statistics.fmean(whole)
        squares = math.fsum((value - middle) ** 2 for value in whole)
        return cls(statistics.fmean(kept), squares, len(kept), whole)


def noise_floor(costs: Sequence[float], others: int) -> float:
    """Return the case's own A/A floor: how much equal code's processes differ from ``others``.

    It is the median over all splits of the processes into two halves of the difference of the
    halves' means, scaled to a comparison of all of them with ``others`` further ones, because the
    difference of means shrinks with the root of their numbers; 0 where there are fewer than four.
    """
    # Winsorised, or one disturbed process would excuse every change.
    values = Trimmed.of(costs[:MOST_SPLIT]).whole
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

    It would be 95% of them, did processes differ exactly as much as those ``before``. ``allowed``
    and ``level`` are those of :func:`decide`; all changes are logarithms.
    """
    noise = effect(before, [before[number % len(before)] for number in range(others)], assumed)
    certain = noise.error * student_quantile(1 - level, noise.degrees)
    return max(allowed, certain) + noise.error * student_quantile(CONFIDENCE, noise.degrees)


def corrected(false_alarms: float, cases: int) -> float:
    """Return the level of one test so that all of them together keep ``false_alarms`` (Bonferroni).

    Holm's procedure rejects more, but needs the results of all cases; ours are decided one by one.
    """
    return false_alarms / max(1, cases)


def decide(found: Effect, allowed: float, detectable_change: float, level: float) -> str:
    """Return a verdict, or '' where more measurements are wanted.

    ``allowed`` is the cost that code may gain, ``detectable_change`` the one that must be excluded
    (with 95% confidence) before it passes, both as logarithms. ``level`` is how often one look at
    equal code may find a change.
    """
    if found.change > allowed and found.bound(1 - level) > 0:
        return REGRESSED
    if found.change < -allowed and found.bound(level) < 0:
        return IMPROVED
    if found.change <= allowed and found.interval()[1] < detectable_change:
        return PASS
    return ""
