"""The one figure of a suite: the geometric mean of its cases' changes."""

from __future__ import annotations

import math
import statistics
from typing import Iterable, NamedTuple, Optional, Tuple

from ipubench.plugins.baseline.rows import in_words

#: The mean of fewer cases summarises nothing.
LEAST_CASES = 3

#: A relative change, + is faster, and the ends of its 95% interval.
Change = Tuple[Optional[float], Optional[float], Optional[float]]


class MeanChange(NamedTuple):
    """The geometric mean of changes, with the 95% interval that their intervals give it."""

    cases: int
    change: float
    low: float
    high: float

    @classmethod
    def of(cls, changes: Iterable[Change]) -> Optional[MeanChange]:
        """Return the mean of the changes whose interval is known; None if they are too few.

        The errors of different cases are taken as independent.
        """
        logs = [
            [math.log1p(value) for value in (change, low, high)]
            for change, low, high in changes
            if change is not None and low is not None and high is not None and low > -1
        ]
        if len(logs) < LEAST_CASES:
            return None
        mean = statistics.fmean(change for change, _, _ in logs)
        below = math.hypot(*(change - low for change, low, _ in logs)) / len(logs)
        above = math.hypot(*(high - change for change, _, high in logs)) / len(logs)
        return cls(len(logs), *map(math.expm1, (mean, mean - below, mean + above)))

    def in_words(self) -> str:
        """Return the line that shows it."""
        change = in_words(self.change, self.low, self.high)
        return f"geometric mean of {self.cases} cases: {change}"


def mean_in_words(changes: Iterable[Change]) -> str:
    """Return the line that shows the mean of changes; '' if they are too few."""
    found = MeanChange.of(changes)
    return "" if found is None else found.in_words()
