"""Compares two environments by pairs of processes. Pure functions.

A pair is the difference of the costs (logarithms of seconds per item, or of another lower-is-better
metric) of two processes that alternate, round by round if they can (plugins/gate/adjacent.py), so
the machine's drift affects both. The side that goes first alternates, and the effect of going first
cancels: the estimate is the mean of both orders' means, and the variance is pooled within the
orders (the two-period crossover design; Hills and Armitage, The two-period cross-over clinical
trial, 1979). With the same number of pairs in each order, the estimate is their mean.
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

#: Fewer pairs give no useful estimate of their spread.
LEAST_PAIRS = 3
#: Pairs before the first look; the next looks follow after every two pairs, one in each order.
FIRST_LOOK = 4
#: How often a run calls any case slower if the code is equal.
FALSE_ALARMS = 0.025
#: A case ends after this many disturbed pairs, if they outnumber the usable ones.
MOST_DISTURBED = 4
#: A verdict mentions other programs if they took at least this share of the rounds' time.
SAID_SHARE = 0.10
#: Without a threshold, pairs are added until the interval is this narrow (each way).
SHOWN_PRECISION = 0.02


class Sides(NamedTuple):
    """One pair: the benchmarks of a process here and one there, and which went first.

    ``rounds`` are those of both if they alternated; None if whole processes did.
    """

    here: Benchmark
    there: Benchmark
    here_first: bool = True
    rounds: Optional[AdjacentRounds] = None

    @property
    def usable(self) -> bool:
        """Whether enough of the pair is undisturbed to compare."""
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
    """The difference of a case's costs (logarithms), here minus there."""

    difference: float
    here_first: bool


class Passed(NamedTuple):
    """A case that needs no more pairs: its pairs, and what :func:`compare` found in them."""

    pairs: List[Sides]
    found: List[MetricVerdict]


def paired_effect(pairs: Sequence[Pair]) -> Effect:
    """Return the cost difference, here minus there; needs three pairs, in both orders."""
    orders = [[p.difference for p in pairs if p.here_first == first] for first in (True, False)]
    degrees = len(pairs) - 2
    squares = math.fsum(
        (value - statistics.fmean(order)) ** 2 for order in orders for value in order
    )
    change = statistics.fmean(statistics.fmean(order) for order in orders)
    inverse = math.fsum(1 / len(order) for order in orders)
    return Effect(change, math.sqrt(squares / degrees * inverse) / 2, degrees)


def looks(cap: int) -> List[int]:
    """Return the numbers of pairs after which the gate looks; ``cap`` is the last."""
    cap = max(cap, LEAST_PAIRS)
    return sorted({*range(FIRST_LOOK, cap + 1, 2), cap})


def level_of_a_look(cap: int, tests: int) -> float:
    """Return the false-alarm rate of one look at one of ``tests``.

    All looks together keep ``FALSE_ALARMS`` (Bonferroni).
    """
    return corrected(FALSE_ALARMS, tests * len(looks(cap)))


def too_disturbed(usable: int, measured: int) -> bool:
    """Return whether to stop, because other programs disturb too many pairs."""
    disturbed = measured - usable
    return disturbed >= MOST_DISTURBED and disturbed > usable


def precise(effect: Effect) -> bool:
    """Return whether the 95% interval is narrow enough without a threshold."""
    low, high = effect.interval()
    return high - low <= 2 * SHOWN_PRECISION


def incomparable(here: Benchmark, there: Benchmark, extra_info: Sequence[str] = ()) -> List[str]:
    """Return the reasons why the two sides did not measure the same thing.

    A different precision or engine is not a reason: if one environment has no better one, that is
    part of the result. ``extra_info``: the keys of it that must be equal.
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
    """Judge the throughput, which comes first, and each metric with a threshold."""
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
    """Return the kind of verdict for an effect, at the level of one look."""
    allowed = math.log1p(threshold)
    detectable_change = max(2 * allowed, math.log1p(DETECTABLE_CHANGE))
    return decide(effect, allowed, detectable_change, level) or INCONCLUSIVE


def is_clear(found: MetricVerdict) -> bool:
    """Return whether a metric needs no more pairs."""
    return precise(found.effect) if found.threshold is None else found.kind != INCONCLUSIVE


def pairs_of(measured: List[Sides], metric: str) -> List[Pair]:
    """Return the pairs of a metric; empty if a side lacks it.

    The canary does not correct them, unlike processes of a stored baseline: a pair is measured at
    one time, and the other side's NumPy may run the canary at a different speed.
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
    """Return whether there are enough pairs, in both orders, to compare."""
    return len(here_first) >= LEAST_PAIRS and len(set(here_first)) == 2


def here_is_next(usable: Sequence[bool], measured: Sequence[bool]) -> bool:
    """Return whether the next pair begins here: the side that went first less often does.

    Counts the ``usable`` pairs, and in a tie all ``measured`` ones.
    """
    ahead = [sum(1 if first else -1 for first in firsts) for firsts in (usable, measured)]
    return ahead <= [0, 0]


def cpu_time_note(measured: Sequence[Sides]) -> List[str]:
    """Return a note on the change of the CPU time per item, if enough pairs have it.

    It does not affect the verdict; it is a hint for the reader of an inconclusive one.
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


def contention_note(measured: Sequence[Sides]) -> List[str]:
    """Return a note on how much other programs took of the compared rounds, if that is much.

    They took it from both sides equally. The change holds next to these programs; without them it
    may differ. If whole processes alternate, only clean rounds are compared.
    """
    rounds = [sides.rounds for sides in measured if sides.rounds is not None]
    share = statistics.median(one.taken(compared=True) for one in rounds) if rounds else 0.0
    if share < SAID_SHARE:
        return []
    return [f"other programs took {_share_text(share)} of the rounds' time, on both sides alike"]


def undecided(measured: Sequence[Sides], reasons: Sequence[str]) -> Verdict:
    """Return the verdict on a case with too few usable pairs.

    ``reasons``: why there are no more pairs, other than disturbance.
    """
    if not measured:
        return Verdict(INCONCLUSIVE, in_turns=True, reasons=tuple(reasons))
    disturbed = [sides for sides in measured if not sides.usable]
    if disturbed:
        reasons = [_why_too_few(disturbed, len(measured)), *cpu_time_note(measured), *reasons]
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
        f"{len(disturbed)} of {count} pairs have too few comparable rounds: other programs took "
        f"{share} of their time, or other virtual machines on this host changed its speed; run it "
        "again on a quiet machine, or add --wait-for-quiet=2min"
    )


def not_judged(found: Sequence[MetricVerdict], thresholds: Mapping[str, float]) -> List[str]:
    """Return a note for each metric that has a threshold but no value on one side."""
    judged = {one.metric for one in found}
    return [left_out(name) for name in SCALARS if name in thresholds and name not in judged]


def verdict_on_pairs(
    measured: List[Sides], found: List[MetricVerdict], reasons: Sequence[str] = ()
) -> Verdict:
    """Return the verdict on a case whose metrics :func:`compare` has judged.

    ``reasons``: notes to add to it.
    """
    reasons = [*contention_note(measured), *reasons]
    if any(one.kind == INCONCLUSIVE for one in found):
        reasons = [*cpu_time_note(measured), *reasons]
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
    """Return a share as text; several waiting threads can push it above 100%."""
    return percent(min(1.0, share), 0)


def _sample(benchmark: Benchmark) -> Process:
    return sample_of(benchmark, fresh=True)
