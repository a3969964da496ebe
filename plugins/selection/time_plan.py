"""Fit cases into a time: first fewer rounds, then fewer cases. Nothing here knows pytest."""

from __future__ import annotations

import collections
import math
from dataclasses import dataclass
from typing import Counter, List, Optional, Sequence

#: Of what a budget is, a case's rounds, warm-up and latency take so much of it.
MEASURED = 1.6
#: However small the budget is, a case makes so many calls of a round's length.
LEAST_CALLS = 5
#: A budget below this one makes figures of too few rounds.
LEAST_BUDGET = 1.0
#: The largest budget that fits is found to within this part of it.
TOLERANCE = 0.01


@dataclass(frozen=True)
class Expected:
    """What a case takes, in seconds: beside its measuring, and for one round.

    Where no budget decides how long it measures, all of it is ``overhead``.
    """

    overhead: float
    round: float = 0.0
    has_budget: bool = True

    def seconds(self, budget: float) -> float:
        """Return the seconds of the case with a budget."""
        if not self.has_budget:
            return self.overhead
        return self.overhead + max(MEASURED * budget, LEAST_CALLS * self.round)


def fitting_budget(cases: Sequence[Expected], seconds: float, budget: float) -> Optional[float]:
    """Return the largest budget up to ``budget`` with which all cases fit into the time.

    None where they do not fit with the least one.
    """

    def fits(chosen: float) -> bool:
        return math.fsum(case.seconds(chosen) for case in cases) <= seconds

    if fits(budget):
        return budget
    low, high = min(LEAST_BUDGET, budget), budget
    if not fits(low):
        return None
    while high - low > TOLERANCE * low:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def fitting_cases(
    cases: Sequence[Expected], functions: Sequence[str], seconds: float, budget: float
) -> List[int]:
    """Return which cases fit into the time with a budget, in order; one at least.

    The first case of each bench function comes before the second of any: so much of the suite as
    fits is seen.
    """
    ranks = []
    seen: Counter[str] = collections.Counter()
    for number, function in enumerate(functions):
        ranks.append((seen[function], number))
        seen[function] += 1
    kept: List[int] = []
    left = seconds
    for _, number in sorted(ranks):
        needed = cases[number].seconds(budget)
        if needed <= left or not kept:
            kept.append(number)
            left -= needed
    return sorted(kept)
