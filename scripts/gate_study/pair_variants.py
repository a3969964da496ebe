"""Other estimates and limits for pairs that took turns, judged on the same pool (pairs.py)."""

from __future__ import annotations

import contextlib
import math
import random
import statistics
from dataclasses import dataclass
from functools import partial
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple
from unittest import mock

from ipubench.fixtures.machine import state
from ipubench.plugins.gate import adjacent, inference, paired
from ipubench.plugins.gate.adjacent import AdjacentRounds
from ipubench.plugins.gate.inference import Effect
from ipubench.plugins.record.statistics import quantile
from scripts.gate_study.pair_trials import (
    JUDGES,
    TIME,
    Combine,
    Estimate,
    Figure,
    Judge,
    PairStudy,
    Setting,
    figures_of,
    plain_mean,
    time_effect,
)
from scripts.gate_study.study import SLOWDOWNS, Tally, share_text

HEADINGS = (
    "variant",
    "spread",
    *(f"{100 * float(level):g}% slower" for level in SLOWDOWNS),
    "open",
    "pairs",
)


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


def variant_rows(
    pool: Dict[str, List[Dict[str, Any]]], setting: Setting, trials: int
) -> List[List[str]]:
    """Return a row for each variant, over all cases of the pool."""
    rows = []
    for variant in VARIANTS:
        with variant.applied():
            rows.append(_row(variant, pool, setting, trials))
    return rows


def _row(
    variant: Variant, pool: Dict[str, List[Dict[str, Any]]], setting: Setting, trials: int
) -> List[str]:
    generator = random.Random(0)  # noqa: S311  draws
    witness = TIME if TIME in variant.judge.witnesses else variant.judge.witnesses[0]
    spreads: List[float] = []
    tallies = {level: Tally() for level in SLOWDOWNS}
    counts = dict.fromkeys(SLOWDOWNS, 0.0)
    for lines in pool.values():
        for level, total in tallies.items():
            pairs = [figures_of(line, level, variant.estimate) for line in lines]
            tally = PairStudy(pairs, setting, variant.combine).run(variant.judge, trials, generator)
            total.add(tally)
            counts[level] += len(lines) / tally.each
            if level == SLOWDOWNS[0]:
                known = [figures[witness] for _, figures in pairs]
                values = [figure.effect.change for figure in known if figure is not None]
                spreads += [statistics.stdev(values)] if len(values) > 1 else []
    equal = tallies[SLOWDOWNS[0]]
    return [
        variant.name,
        f"{statistics.fmean(spreads):.1%}" if spreads else "-",
        *(share_text(t.regressed, t.trials, counts[level]) for level, t in tallies.items()),
        equal.open_share,
        f"{equal.each:.1f}",
    ]
