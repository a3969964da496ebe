"""Other estimates and limits for pairs that took turns, judged on the same pool (pairs.py)."""

from __future__ import annotations

import contextlib
import math
import statistics
from dataclasses import dataclass
from functools import partial
from typing import Any, Iterator, List, Optional, Sequence, Tuple
from unittest import mock

from ipubench.fixtures.machine import state
from ipubench.plugins.gate import adjacent, inference, paired
from ipubench.plugins.gate.adjacent import AdjacentRounds
from ipubench.plugins.gate.inference import Effect
from ipubench.plugins.record.statistics import quantile
from scripts.gate_study.pair_trials import (
    JUDGES,
    Combine,
    Estimate,
    Figure,
    Judge,
    Setting,
    plain_mean,
    spread,
    studies_of,
    tallies_of,
    time_effect,
)
from scripts.gate_study.pool import EQUAL, SHOWN, SLOWDOWNS, Pool
from scripts.gate_study.tally import sum_of

HEADINGS = ("variant", "spread", *(f"{text} slower" for text in SHOWN), "open", "pairs")


def of_quantile(rounds: AdjacentRounds, q: float) -> Optional[Effect]:
    """Return the ratio of a quantile of the rounds here to that of the rounds there.

    Rounds of each order are taken by themselves, as the suite's estimate takes them.
    """
    if not rounds.enough:
        return None
    kept = rounds.comparable()
    found = []
    for order in (True, False):
        here, there = (
            [
                value
                for value, compared, first in zip(side.seconds, kept, rounds.here_first)
                if compared and first == order
            ]
            for side in (rounds.here, rounds.there)
        )
        found.append(math.log(quantile(here, q) / quantile(there, q)))
    items = math.log(rounds.items_here / rounds.items_there)
    return Effect(statistics.fmean(found) - items, math.nan, 1)


def _error_of_one(figures: Sequence[Figure]) -> float:
    """Return the error of the pairs' mean where one pair has a standard deviation of 1."""
    counts = [sum(one.here_first == first for one in figures) for first in (True, False)]
    return math.sqrt(math.fsum(1 / count for count in counts)) / 2


def weighted_mean(figures: Sequence[Figure]) -> Effect:
    """Return the mean of pairs weighted by their inverse variance.

    A pair's variance is that of its own rounds and that between pairs, which is estimated from what
    the pairs differ by beyond their own (DerSimonian and Laird, Meta-analysis in clinical trials,
    1986). The error is that of the weighted deviations, as the suite's is of the plain ones.
    """
    plain = plain_mean(figures)
    orders = [[one for one in figures if one.here_first == first] for first in (True, False)]
    total = plain.error**2 / _error_of_one(figures) ** 2  # the variance of one pair
    own = statistics.fmean(one.effect.error**2 for one in figures)
    between = max(0.0, total - own)
    weights = [[1 / (between + one.effect.error**2 + 1e-12) for one in order] for order in orders]
    means, squares = [], 0.0
    for order, weight in zip(orders, weights):
        values = [one.effect.change for one in order]
        means.append(math.fsum(w * v for w, v in zip(weight, values)) / math.fsum(weight))
        squares += math.fsum(w * (v - means[-1]) ** 2 for w, v in zip(weight, values))
    scale = squares / plain.degrees * math.fsum(1 / math.fsum(weight) for weight in weights)
    return Effect(statistics.fmean(means), math.sqrt(scale) / 2, plain.degrees)


def moderated_mean(figures: Sequence[Figure], assumed: float, degrees: int) -> Effect:
    """Return the plain mean, its variance pooled with an assumed one that counts for ``degrees``.

    As plugins/gate/inference.py does with processes: few pairs that happen to agree are not sure.
    """
    plain = plain_mean(figures)
    unit = _error_of_one(figures)
    together = plain.degrees + degrees
    squares = plain.degrees * plain.error**2 + degrees * (unit * assumed) ** 2
    return Effect(plain.change, math.sqrt(squares / together), together)


@dataclass(frozen=True)
class Variant:
    """Another estimate of a pair or of several, other constants, or another judge."""

    name: str
    estimate: Estimate = time_effect
    combine: Combine = plain_mean
    constants: Tuple[Tuple[Any, str, float], ...] = ()
    judge: Judge = JUDGES[0]

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Give the suite's modules the constants of this variant meanwhile."""
        with contextlib.ExitStack() as stack:
            for module, name, value in self.constants:
                stack.enter_context(mock.patch.object(module, name, value))
            yield


def limit(unequal: float) -> Tuple[Any, str, float]:
    """Return which adjacent rounds are compared, as a constant."""
    return adjacent, "MOST_UNEQUAL", unequal


ANY_STATE = (state, "BAND", math.inf)
VARIANTS = (
    Variant("the rule"),
    *(Variant(f"judged by {judge.name}", judge=judge) for judge in JUDGES[1:]),
    Variant("ratio of medians", partial(of_quantile, q=0.5)),
    Variant("ratio of 10% quantiles", partial(of_quantile, q=0.1)),
    Variant("ratio of minima", partial(of_quantile, q=0.0)),
    Variant("weighted by inverse variance", combine=weighted_mean),
    *(
        Variant(
            f"spread of {assumed:.1%} assumed for {degrees}",
            combine=partial(moderated_mean, assumed=assumed, degrees=degrees),
        )
        for assumed in (0.01, 0.015, 0.02, 0.03)
        for degrees in (3, 6)
    ),
    Variant("mean of rounds not trimmed", constants=((inference, "TRIMMED", 1 << 30),)),
    Variant("mean trimmed by a third", constants=((inference, "TRIMMED", 3),)),
    *(
        Variant(f"MOST_UNEQUAL={unequal:g}", constants=(limit(unequal),))
        for unequal in (0.02, 0.05, 0.2, 0.4)
    ),
    Variant("all rounds that found one state", constants=(limit(math.inf),)),
    Variant("any state of the machine", constants=(ANY_STATE,)),
    Variant("all rounds", constants=(ANY_STATE, limit(math.inf))),
    Variant("FALSE_ALARMS=0.01", constants=((paired, "FALSE_ALARMS", 0.01),)),
    Variant("FALSE_ALARMS=0.05", constants=((paired, "FALSE_ALARMS", 0.05),)),
    Variant("FIRST_LOOK=6", constants=((paired, "FIRST_LOOK", 6),)),
    Variant("FIRST_LOOK=8", constants=((paired, "FIRST_LOOK", 8),)),
)


def variant_rows(pool: Pool, setting: Setting, trials: int) -> List[List[str]]:
    """Return a row for each variant, over all cases of the pool."""
    rows = []
    for variant in VARIANTS:
        with variant.applied():
            rows.append(_row(variant, pool, setting, trials))
    return rows


def _row(variant: Variant, pool: Pool, setting: Setting, trials: int) -> List[str]:
    studies = studies_of(pool, setting, variant.estimate, variant.combine)
    tallies = tallies_of(studies, variant.judge, trials)
    totals = [sum_of(levels[level] for levels in tallies.values()) for level in SLOWDOWNS]
    found = [spread(levels[EQUAL], variant.judge.witnesses[0]) for levels in studies.values()]
    spreads = [value for value in found if value is not None]
    return [
        variant.name,
        f"{statistics.fmean(spreads):.1%}" if spreads else "-",
        *(total.slower_share for total in totals),
        totals[0].open_share,
        f"{totals[0].each:.1f}",
    ]
