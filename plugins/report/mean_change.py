"""The one figure of a suite: the geometric mean of its cases' changes."""

from __future__ import annotations

import math
import statistics
from typing import Iterable, NamedTuple, Optional

from ipubench.plugins.record.verdict import Verdict, in_words

#: The mean of fewer cases summarises nothing.
LEAST_CASES = 3


class MeanChange(NamedTuple):
    """The geometric mean of changes, with the 95% interval that their intervals give it."""

    cases: int
    change: float
    low: float
    high: float

    @classmethod
    def of(cls, verdicts: Iterable[Verdict]) -> Optional[MeanChange]:
        """Return the mean of the changes whose interval is known; None if they are too few.

        The errors of different cases are taken as independent.
        """
        logs = [
            [math.log1p(value) for value in (change, low, high)]
            for change, low, high in ((one.change, one.low, one.high) for one in verdicts)
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


def mean_in_words(verdicts: Iterable[Verdict]) -> str:
    """Return the line that shows the mean of changes; '' if they are too few."""
    found = MeanChange.of(verdicts)
    return "" if found is None else found.in_words()
