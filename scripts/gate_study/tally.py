"""Counts verdicts over many trials, and their shares with confidence intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Iterable, List, Tuple

from ipubench.plugins.record.verdict import INCONCLUSIVE, REGRESSED

#: The columns of wrong verdicts and of the trials that they are out of.
WRONG_ANSWERS = (
    "equal called slower",
    "10% slower passed",
    "equal decided",
    "10% slower decided",
)
#: 95%, two-sided.
NORMAL_QUANTILE = 1.96


@dataclass
class Tally:
    """Counts of trials, and the least number of independent trials they are worth."""

    trials: int = 0
    regressed: int = 0
    inconclusive: int = 0
    processes: int = 0
    independent: float = 0.0

    def count(self, kind: str, processes: int = 0) -> None:
        """Count a trial with this verdict, which took this many processes."""
        self.trials += 1
        self.regressed += kind == REGRESSED
        self.inconclusive += kind == INCONCLUSIVE
        self.processes += processes

    @property
    def each(self) -> float:
        """How many processes a trial took on average."""
        return self.processes / self.trials

    @property
    def open_share(self) -> str:
        """The share of inconclusive trials as text."""
        return f"{self.inconclusive / self.trials:.0%}"

    @property
    def decided_share(self) -> str:
        """The share of decided trials as text."""
        return f"{1 - self.inconclusive / self.trials:.0%}"

    @property
    def slower_share(self) -> str:
        """The share of *slower* verdicts, with its interval."""
        return share_text(self.regressed, self.trials, self.independent)

    @property
    def passed_share(self) -> str:
        """The share of trials that were decided and not called slower, with its interval."""
        passed = self.trials - self.regressed - self.inconclusive
        return share_text(passed, self.trials, self.independent)


def sum_of(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of tallies."""
    total = Tally()
    for tally in tallies:
        total.trials += tally.trials
        total.regressed += tally.regressed
        total.inconclusive += tally.inconclusive
        total.processes += tally.processes
        total.independent += tally.independent
    return total


def wrong_answers(equal: Tally, slower: Tally) -> List[str]:
    """Return the cells of WRONG_ANSWERS: for equal code and for code that is 10% slower."""
    return [
        equal.slower_share,
        slower.passed_share,
        equal.decided_share,
        slower.decided_share,
    ]


def share_text(count: int, trials: int, independent: float) -> str:
    """Return a share of trials with its interval."""
    low, high = wilson(count / trials, independent)
    return f"{count / trials:.1%} ({low:.0%}-{high:.0%})"


def wilson(share: float, independent: float) -> Tuple[float, float]:
    """Return Wilson's 95% interval of a share of ``independent`` trials."""
    z, p, n = NORMAL_QUANTILE, share, independent
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)
