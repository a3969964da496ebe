"""Quantiles of Student's t distribution, from the standard library alone."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

PRECISION = 1e-13


@lru_cache(maxsize=4096)
def student_quantile(confidence: float, degrees: float) -> float:
    """Return the value that t stays below with this probability, for ``degrees`` of freedom."""
    if confidence == 0.5:
        return 0.0
    if confidence < 0.5:
        return -student_quantile(1 - confidence, degrees)
    target = 1 - confidence
    t = 1.0
    while _upper_tail(t, degrees) > target:
        t *= 2
    # The logarithm of the tail is a concave function of log t: from above, Newton's method on both
    # logarithms approaches the quantile without passing it.
    while True:
        tail = _upper_tail(t, degrees)
        step = math.log(tail / target) * tail / (t * _density(t, degrees))
        t *= math.exp(step)
        if abs(step) < PRECISION or step > 0:
            return t


def _density(t: float, degrees: float) -> float:
    log_gammas = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
    power = (degrees + 1) / 2 * math.log1p(t * t / degrees)
    return math.exp(log_gammas - power) / math.sqrt(degrees * math.pi)


def _upper_tail(t: float, degrees: float) -> float:
    """Return the probability of more than ``t``, which is above 0.

    It is half the regularised incomplete beta function I_x(degrees / 2, 1 / 2) at
    x = degrees / (degrees + t^2) (Abramowitz and Stegun, 26.7.1).
    """
    a, b = degrees / 2, 0.5
    x, rest = degrees / (degrees + t * t), t * t / (degrees + t * t)
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    front = math.exp(a * math.log(x) + b * math.log(rest) - log_beta)
    if x < (a + 1) / (a + b + 2):
        return front / a * _beta_fraction(x, a, b) / 2
    return (1 - front / b * _beta_fraction(rest, b, a)) / 2


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction of I_x(a, b) (DLMF 8.17.22), by Lentz's method."""
    numerator, inverse, value = 1.0, 0.0, 1.0
    for m in itertools.count(1):
        k = m // 2
        if m % 2:
            term = -(a + k) * (a + b + k) * x / ((a + 2 * k) * (a + 2 * k + 1))
        else:
            term = k * (b - k) * x / ((a + 2 * k - 1) * (a + 2 * k))
        numerator = 1 + term / numerator
        inverse = 1 / (1 + term * inverse)
        value *= numerator * inverse
        if abs(numerator * inverse - 1) < PRECISION:
            break
    return 1 / value
