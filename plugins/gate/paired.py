"""Is one environment slower than another? Statistics of pairs measured in turns. Pure functions.

A pair is the difference of two costs (logarithms of seconds per item, or of any figure of which
less is better) measured one after the other, so that the machine's drift is in both. Which side
comes first alternates, and what being first costs is taken out: the estimate is the mean of the
two orders' means, its variance is pooled within the orders (the two-period crossover design; Hills
and Armitage, The two-period cross-over clinical trial, 1979). With equally many pairs of each
order the estimate is their mean.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import List, Sequence

from ipubench.plugins.gate.inference import Effect, corrected

#: Fewer pairs say nothing of their spread.
LEAST_PAIRS = 3
#: The first look; later ones follow each further couple of pairs, one of each order.
FIRST_LOOK = 4
#: How often equal code is called slower, in one run over all its cases.
FALSE_ALARMS = 0.025
#: Without a threshold pairs are added until the interval is this narrow (each way).
SHOWN_PRECISION = 0.02


@dataclass(frozen=True)
class Pair:
    """How much more a case costs here than there: a difference of logarithms."""

    difference: float
    here_first: bool


def paired_effect(pairs: Sequence[Pair]) -> Effect:
    """Return how much more the code costs here than there; needs pairs of both orders, three."""
    orders = [[p.difference for p in pairs if p.here_first == first] for first in (True, False)]
    degrees = len(pairs) - 2
    squares = math.fsum(
        (value - statistics.fmean(order)) ** 2 for order in orders for value in order
    )
    change = statistics.fmean(statistics.fmean(order) for order in orders)
    inverse = math.fsum(1 / len(order) for order in orders)
    return Effect(change, math.sqrt(squares / degrees * inverse) / 2, degrees)


def looks(cap: int) -> List[int]:
    """Return after how many pairs a decision is tried, when there may be ``cap`` of them."""
    cap = max(cap, LEAST_PAIRS)
    return sorted({*range(FIRST_LOOK, cap + 1, 2), cap})


def level_of_a_look(cap: int, tests: int) -> float:
    """Return the false alarms that one look at one of ``tests`` may give on equal code.

    All looks at all of them together give at most ``FALSE_ALARMS`` (Bonferroni).
    """
    return corrected(FALSE_ALARMS, tests * len(looks(cap)))


def precise(effect: Effect) -> bool:
    """Tell whether the 95% interval is narrow enough to be shown."""
    low, high = effect.interval()
    return high - low <= 2 * SHOWN_PRECISION
