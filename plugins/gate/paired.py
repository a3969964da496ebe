"""Is one environment slower than another? Statistics of pairs measured in turns. Pure functions.

A pair is the difference of two costs (logarithms of seconds per item, or of any figure of which
less is better) of two processes, measured in turns, round by round where they can
(plugins/gate/adjacent.py), so that the machine's drift is in both. Which side comes first
alternates, and what being first costs is taken out: the estimate is the mean of the two orders'
means, its variance is pooled within the orders (the two-period crossover design; Hills and
Armitage, The two-period cross-over clinical trial, 1979). With equally many pairs of each order the
estimate is their mean.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import List, Mapping, NamedTuple, Optional, Sequence

from msgspec.structs import replace

from ipubench.plugins.gate.adjacent import AdjacentRounds
from ipubench.plugins.gate.countable import is_clean, same_copy
from ipubench.plugins.gate.inference import Effect, corrected, decide
from ipubench.plugins.gate.metric_verdict import (
    MetricVerdict,
    build_verdict,
    left_out,
    log_cost,
    typical,
)
from ipubench.plugins.gate.rule import DETECTABLE_CHANGE
from ipubench.plugins.record.differences import (
    at_once,
    changed_extra_info,
    changed_settings,
    differences,
    other_items,
    same_latency,
)
from ipubench.plugins.record.record import SCALARS, THROUGHPUT, sample_of
from ipubench.plugins.record.structs import Benchmark, Process
from ipubench.plugins.record.text import percent
from ipubench.plugins.record.verdict import INCONCLUSIVE, UNJUDGED, Verdict

#: Fewer pairs say nothing of their spread.
LEAST_PAIRS = 3
#: The first look; later ones follow each further couple of pairs, one of each order.
FIRST_LOOK = 4
#: How often equal code is called slower, in one run over all its cases.
FALSE_ALARMS = 0.025
#: After so many pairs that others disturbed, and more of them than of others, a case is given up.
MOST_DISTURBED = 4
#: From this share of the rounds' time on, what other programs took is said with the change.
SAID_SHARE = 0.10
#: Without a threshold pairs are added until the interval is this narrow (each way).
SHOWN_PRECISION = 0.02


class Sides(NamedTuple):
    """One pair: the benchmarks of a process here and of one there, and which was first.

    ``rounds`` are those of both where they took turns round by round; else the processes did.
    """

    here: Benchmark
    there: Benchmark
    here_first: bool = True
    rounds: Optional[AdjacentRounds] = None

    @property
    def usable(self) -> bool:
        """Whether other programs, and the state of the machine, left enough to compare."""
        if self.rounds is not None:
            return self.rounds.enough
        here, there = _sample(self.here), _sample(self.there)
        return is_clean(here) and is_clean(there) and same_copy(here, there.copy_ms)

    @property
    def lost(self) -> float:
        """The share of the rounds' time that other programs took."""
        if self.rounds is not None:
            return self.rounds.taken()
        samples = [_sample(one) for one in (self.here, self.there)]
        return max(sample.lost or 0.0 for sample in samples)


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


def given_up(usable: int, measured: int) -> bool:
    """Tell whether no more pairs are tried, because others disturb too many of them."""
    disturbed = measured - usable
    return disturbed >= MOST_DISTURBED and disturbed > usable


def precise(effect: Effect) -> bool:
    """Tell whether the 95% interval is narrow enough to be shown."""
    low, high = effect.interval()
    return high - low <= 2 * SHOWN_PRECISION


def incomparable(here: Benchmark, there: Benchmark, extra_info: Sequence[str] = ()) -> List[str]:
    """Return why the two sides did not measure the same thing, in words.

    Another precision or engine is no reason: that one environment has no better one is part of the
    result, and is said with it. ``extra_info``: what of a test's own facts has to be the same.
    """
    ours, theirs = here.record, there.record
    found = []
    if ours.config_hash != theirs.config_hash:
        found.append("another configuration there")
    if ours.device.fingerprint != theirs.device.fingerprint:
        found.append(f"another device there ({theirs.device.fingerprint})")
    found += other_items(ours, theirs)
    if at_once(ours) != at_once(theirs):
        found.append(
            f"requests sent at once ({at_once(theirs):g} of those configured there, "
            f"{at_once(ours):g} here)"
        )
    found += changed_settings(here, there)
    return found + changed_extra_info(here, there, extra_info)


def compare(
    measured: List[Sides], thresholds: Mapping[str, float], level: float
) -> List[MetricVerdict]:
    """Judge the throughput, which comes first, and every metric that has a threshold."""
    found = []
    for metric in (THROUGHPUT, *(name for name in SCALARS if name in thresholds)):
        pairs = pairs_of(measured, metric)
        if pairs:
            effect, threshold = paired_effect(pairs), thresholds.get(metric)
            kind = UNJUDGED if threshold is None else kind_of(effect, threshold, level)
            here = [_sample(sides.here) for sides in measured]
            there = [_sample(sides.there) for sides in measured]
            now, before = typical(here, metric), typical(there, metric)
            found.append(MetricVerdict(metric, kind, effect, before, now, threshold))
    return found


def kind_of(effect: Effect, threshold: float, level: float) -> str:
    """Return the verdict on the effect of some pairs, at the level of one look."""
    allowed = math.log1p(threshold)
    detectable_change = max(2 * allowed, math.log1p(DETECTABLE_CHANGE))
    return decide(effect, allowed, detectable_change, level) or INCONCLUSIVE


def is_clear(found: MetricVerdict) -> bool:
    """Tell whether no more pairs are wanted for a metric."""
    return precise(found.effect) if found.threshold is None else found.kind != INCONCLUSIVE


def pairs_of(measured: List[Sides], metric: str) -> List[Pair]:
    """Return the pairs of a metric; empty where a side has no such figure.

    They are not divided by the canary, as processes of a stored baseline are: a pair is measured at
    one time, and another NumPy may run the canary at another speed.
    """
    pairs = []
    for sides in measured:
        if metric == THROUGHPUT and sides.rounds is not None:
            pairs.append(Pair(sides.rounds.effect().change, sides.here_first))
            continue
        here = log_cost(_sample(sides.here), metric, canary=False)
        there = log_cost(_sample(sides.there), metric, canary=False)
        alike = metric != "latency_p99" or same_latency(sides.here.record, sides.there.record)
        if here is None or there is None or not alike:
            return []
        pairs.append(Pair(here - there, sides.here_first))
    return pairs


def can_compare(here_first: Sequence[bool]) -> bool:
    """Tell whether there are enough pairs, of both orders, to say anything."""
    return len(here_first) >= LEAST_PAIRS and len(set(here_first)) == 2


def here_is_next(usable: Sequence[bool], measured: Sequence[bool]) -> bool:
    """Tell whether the next pair begins here: first comes the side that was first less often.

    In the ``usable`` pairs; where these say nothing, in all that were ``measured``.
    """
    ahead = [sum(1 if first else -1 for first in firsts) for firsts in (usable, measured)]
    return ahead <= [0, 0]


def cpu_words(measured: Sequence[Sides]) -> List[str]:
    """Say how the CPU time of an item changed, where that is known of enough pairs.

    It judges nothing: it tells the reader of an open answer in which direction to look.
    """
    known = []
    for sides in measured:
        effect = None if sides.rounds is None else sides.rounds.cpu_effect()
        if effect is not None:
            known.append(Pair(effect.change, sides.here_first))
    if not can_compare([pair.here_first for pair in known]):
        return []
    found = paired_effect(known)
    change, low, high = (
        percent(math.expm1(value), sign=True) for value in (found.change, *found.interval())
    )
    return [f"the CPU time of an item changed by {change} ({low} to {high})"]


def beside_words(measured: Sequence[Sides]) -> List[str]:
    """Say how much others took of the rounds that are compared, where it is worth a word.

    They took it from both sides alike, and the change holds beside them: another speed without
    them is not measured. Of whole processes only clean rounds are compared.
    """
    rounds = [sides.rounds for sides in measured if sides.rounds is not None]
    share = statistics.median(one.taken(compared=True) for one in rounds) if rounds else 0.0
    if share < SAID_SHARE:
        return []
    return [f"other programs took {_share_text(share)} of the rounds' time, on both sides alike"]


def undecided(measured: Sequence[Sides], reasons: Sequence[str]) -> Verdict:
    """Return the verdict on a case of which too few pairs are left to compare.

    ``reasons``: why there are no more, where other programs are not the reason.
    """
    if not measured:
        return Verdict(INCONCLUSIVE, in_turns=True, reasons=tuple(reasons))
    disturbed = [sides for sides in measured if not sides.usable]
    if disturbed:
        reasons = [_why_too_few(disturbed, len(measured)), *cpu_words(measured), *reasons]
    return Verdict(
        INCONCLUSIVE,
        before=typical([_sample(sides.there) for sides in measured], THROUGHPUT),
        now=typical([_sample(sides.here) for sides in measured], THROUGHPUT),
        unit=measured[-1].here.record.throughput.unit,
        processes=len(measured),
        processes_before=len(measured),
        in_turns=True,
        reasons=tuple(reasons),
    )


def _why_too_few(disturbed: Sequence[Sides], count: int) -> str:
    share = _share_text(statistics.median(sides.lost for sides in disturbed))
    return (
        f"{len(disturbed)} of {count} pairs have too few rounds that can be compared: other "
        f"programs took {share} of their time, or other machines of its host changed its speed; "
        "run it again while they rest, or add --wait-for-quiet=2min"
    )


def not_judged(found: Sequence[MetricVerdict], thresholds: Mapping[str, float]) -> List[str]:
    """Say which metrics have a threshold and no verdict, because a side has no such figure."""
    judged = {one.metric for one in found}
    return [left_out(name) for name in SCALARS if name in thresholds and name not in judged]


def verdict_on_pairs(
    measured: List[Sides], found: List[MetricVerdict], reasons: Sequence[str] = ()
) -> Verdict:
    """Return the verdict on a case whose metrics :func:`compare` has judged.

    ``reasons``: what else is to be said of it.
    """
    reasons = [*beside_words(measured), *reasons]
    if any(one.kind == INCONCLUSIVE for one in found):
        reasons = [*cpu_words(measured), *reasons]
    here, there = measured[-1].here.record, measured[-1].there.record
    threshold: Optional[float] = found[0].threshold
    verdict = build_verdict(
        found[0],
        found[1:],
        here.throughput.unit,
        (len(measured), len(measured)),
        threshold,
        [*differences(here, there), *reasons],
        in_turns=True,
    )
    changed = changed_extra_info(measured[-1].here, measured[-1].there)
    return replace(verdict, extra_info=tuple(changed))


def _share_text(share: float) -> str:
    """Return a share in words; several threads can wait at a time, which says nothing more."""
    return percent(min(1.0, share), 0)


def _sample(benchmark: Benchmark) -> Process:
    return sample_of(benchmark, fresh=True)
