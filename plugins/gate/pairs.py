"""Compares two environments by pairs of processes. Pure functions.

A pair is the difference of the costs (logarithms of seconds per item, or of another lower-is-better
metric) of two processes that alternate, round by round if they can (plugins/gate/rounds.py), so
the machine's drift affects both. The side that goes first alternates, and the effect of going first
cancels: the estimate is the mean of both orders' means, and the variance is pooled within the
orders (the two-period crossover design; Hills and Armitage, The two-period cross-over clinical
trial, 1979). With the same number of pairs in each order, the estimate is their mean.

Several cases may share the processes of a pair. A neighbour must not be the cause of a regression:
a case fails only if it is slower in pairs of its own as well.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from typing import List, Mapping, Optional, Sequence, Tuple

import msgspec.structs

from ipubench.plugins.gate.decision import Decision, Need
from ipubench.plugins.gate.inference import Effect, corrected, decide
from ipubench.plugins.gate.metric_verdict import (
    MetricVerdict,
    build_verdict,
    left_out,
    typical,
)
from ipubench.plugins.gate.sides import (
    LEAST_PAIRS,
    Sides,
    both_orders,
    can_compare,
    cpu_pairs_of,
    incomparable,
    is_far,
    paired_effect,
    pairs_of,
    sample_in_pair,
)
from ipubench.plugins.gate.stored import detectable_change
from ipubench.plugins.record.differences import changed_extra_info, differences
from ipubench.plugins.record.record import SCALARS, THROUGHPUT
from ipubench.plugins.record.structs import Benchmark
from ipubench.plugins.record.text import percent
from ipubench.plugins.record.verdict import (
    INCOMPARABLE,
    INCONCLUSIVE,
    PASS,
    REGRESSED,
    UNJUDGED,
    Verdict,
)

#: Pairs before the first look; the next looks follow after every two pairs, one in each order.
FIRST_LOOK = 4
#: How often a run calls any case slower if the code is equal.
FALSE_ALARMS = 0.025
#: A case gets no more pairs after this many disturbed ones, if they outnumber the usable ones.
MOST_DISTURBED = 4
#: Other programs hold the CPUs if they take at least this share of the rounds' time.
HELD_SHARE = 0.02
#: A regression needs this many pairs that no other case shares, one in each order, even beyond
#: the cap.
LEAST_ALONE = 2
#: A verdict mentions other programs if they took at least this share of the rounds' time.
SHOWN_SHARE = 0.10
FASTER = "it was faster in each of its pairs"
NOT_ALONE = "it was slower only next to other cases in the same process"
#: Without a threshold, pairs are added until the interval is this narrow (each way).
SHOWN_PRECISION = 0.02


@dataclass(frozen=True)
class PairRule:
    """The thresholds and limits for judging a case in pairs."""

    thresholds: Mapping[str, float]  # metric -> allowed relative worsening
    cases: int = 1  # compared in this run
    most: int = 16  # pairs, but never fewer than LEAST_PAIRS
    extra_info: Sequence[str] = ()  # keys of extra_info that must be equal

    @property
    def cap(self) -> int:
        """The most pairs of one case."""
        return max(self.most, LEAST_PAIRS)

    @property
    def level(self) -> float:
        """The false-alarm rate of one look at one metric of one case.

        All looks together keep ``FALSE_ALARMS`` (Bonferroni).
        """
        tests = self.cases * max(1, len(self.thresholds))
        return corrected(FALSE_ALARMS, tests * len(looks(self.cap)))


def looks(cap: int) -> List[int]:
    """Return the numbers of pairs after which the gate looks; ``cap`` is the last."""
    return sorted({*range(FIRST_LOOK, cap + 1, 2), cap})


def decide_pairs(measured: Sequence[Sides], rule: PairRule) -> Decision:
    """Return the verdict on a case from its pairs so far, or the need for more of them."""
    if not measured:
        return Need(pairs=FIRST_LOOK)
    case = _Case(measured, rule)
    look = case.unlike or case.look()
    if isinstance(look, Verdict):
        return look
    if look.is_clear and not (look.slower and not case.slower_alone(look)):
        return case.verdict(look)
    alone = case.look(alone=True)
    if alone.is_clear and not alone.slower:  # other cases were the cause
        return case.verdict(alone)
    if look.is_clear and (case.may_have_more or len(case.alone) < LEAST_ALONE):
        return Need(pairs=1, alone=True)
    if not case.may_have_more:
        return case.conclude()
    return Need(pairs=case.until_next_look, alone=case.has_left or case.is_far_beyond)


def conclude_pairs(
    measured: Sequence[Sides], rule: PairRule, reasons: Sequence[str] = ()
) -> Verdict:
    """Return the verdict if no more pairs can be measured, for these ``reasons``."""
    if not measured:
        return Verdict(INCONCLUSIVE, in_turns=True, reasons=tuple(reasons))
    case = _Case(measured, rule)
    return case.unlike or case.conclude(reasons)


def pairs_left(measured: Sequence[Sides], rule: PairRule) -> int:
    """Return about how many more pairs a case needs, if they differ as those so far."""
    case = _Case(measured, rule) if measured else None
    look = case.look(final=True) if case is not None else None
    later = [number for number in looks(rule.cap) if number > len(measured)]
    for number in later:
        if look is None or (
            look.found and all(_may_decide(one, look, number, rule) for one in look.found)
        ):
            return number - len(measured)
    return max(0, rule.cap - len(measured))


def _may_decide(found: MetricVerdict, look: Look, number: int, rule: PairRule) -> bool:
    """Return whether ``number`` pairs that differ like those of a look would be clear."""
    error = found.effect.error * math.sqrt(len(look.sides) / number)
    expected = Effect(found.effect.change, error, number - 2)
    if found.threshold is None:
        return precise(expected)
    return kind_of(expected, found.threshold, rule.level) != INCONCLUSIVE


def outlook(measured: Sequence[Sides], rule: PairRule) -> str:
    """Return what an undecided case looks like: 'slower', 'faster' or ''."""
    pairs = pairs_of([sides for sides in measured if sides.usable], THROUGHPUT)
    if not pairs:
        return ""
    change = statistics.fmean(pair.difference for pair in pairs)
    allowed = math.log1p(rule.thresholds.get(THROUGHPUT, 0.0))
    return "slower" if change > allowed else "faster" if change < -allowed else ""


@dataclass(frozen=True)
class Look:
    """What the gate finds in some pairs: the throughput, which comes first, and other metrics."""

    sides: Sequence[Sides]
    found: Sequence[MetricVerdict]
    by_cpu_time: bool = False

    @property
    def is_clear(self) -> bool:
        """Whether no metric needs more pairs."""
        return bool(self.found) and all(map(is_clear, self.found))

    @property
    def slower(self) -> List[MetricVerdict]:
        """The metrics that have become worse."""
        return [one for one in self.found if one.kind == REGRESSED]


class _Case:
    """A case with the pairs that have measured it."""

    def __init__(self, measured: Sequence[Sides], rule: PairRule) -> None:
        self.measured, self.rule = measured, rule
        self.usable = [sides for sides in measured if sides.usable]
        #: The pairs that no other case shared.
        self.alone = [sides for sides in measured if sides.alone]
        #: The pairs in which CPU time is evidence: if other programs hold the CPUs, or if it alone
        #: is more than the former time.
        held = statistics.median(sides.lost for sides in measured) >= HELD_SHARE
        self.by_cpu = [
            sides for sides in measured if cpu_pairs_of([sides]) and (held or is_far(sides))
        ]

    @property
    def unlike(self) -> Optional[Verdict]:
        """The verdict if both sides did not measure the same thing."""
        latest = self.measured[-1]
        reasons = incomparable(latest.here, latest.there, self.rule.extra_info)
        return Verdict(INCOMPARABLE, reasons=tuple(reasons)) if reasons else None

    @property
    def may_have_more(self) -> bool:
        """Whether more pairs may help."""
        disturbed = too_many_disturbed(len(self.usable), len(self.measured))
        return len(self.measured) < self.rule.cap and not (disturbed and not self.by_cpu)

    @property
    def has_left(self) -> bool:
        """Whether it has left the pairs that measure several cases."""
        return self.measured[-1].alone

    @property
    def until_next_look(self) -> int:
        """The number of pairs until the gate looks again."""
        left = self.rule.cap - len(self.measured)
        missing = [
            number - len(sides)
            for sides in (self.usable, self.by_cpu)
            for number in looks(self.rule.cap)
            if number > len(sides)
        ]
        return min([left, *missing])

    @property
    def is_far_beyond(self) -> bool:
        """Whether it was much slower in each pair so far, so that it will need pairs of its own."""
        threshold = self.rule.thresholds.get(THROUGHPUT)
        if threshold is None or not both_orders(self.usable):
            return False
        beyond = detectable_change(threshold)
        return all(one.difference > beyond for one in pairs_of(self.usable, THROUGHPUT))

    def look(self, final: bool = False, alone: bool = False) -> Look:
        """Return the latest look; if it is ``final``, at all pairs.

        ``alone``: only at pairs that no other case shared. The look is by CPU time if that is clear
        and the time itself is not.
        """
        views = [self._look(self.usable, False, final, alone)]
        if not views[0].is_clear and self.by_cpu:
            views.append(self._look(self.by_cpu, True, final, alone))
        return next((one for one in views if one.is_clear), views[0])

    def _look(self, sides: Sequence[Sides], by_cpu: bool, final: bool, alone: bool) -> Look:
        sides = [one for one in sides if one.alone or not alone]
        if not final:
            reached = [number for number in looks(self.rule.cap) if number <= len(sides)]
            sides = sides[: max(reached, default=0)]
        return Look(sides, compare(sides, self.rule, by_cpu), by_cpu)

    def slower_alone(self, look: Look) -> bool:
        """Return whether the case is also slower, on average, in pairs of its own."""
        pairs = self.by_cpu if look.by_cpu_time else self.usable
        alone = [sides for sides in pairs if sides.alone]
        if not both_orders(alone):
            return False
        for one in look.slower:
            by_cpu = look.by_cpu_time and one.metric == THROUGHPUT
            found = cpu_pairs_of(alone) if by_cpu else pairs_of(alone, one.metric)
            if statistics.fmean(pair.difference for pair in found) > math.log1p(one.threshold or 0):
                return True
        return False

    def conclude(self, reasons: Sequence[str] = ()) -> Verdict:
        """Return the verdict on all pairs."""
        look = self.look(final=True)
        if look.slower and not self.slower_alone(look):
            look = self.look(final=True, alone=True)
            reasons = [*reasons, NOT_ALONE]
        return self.verdict(look, reasons) if look.found else self._undecided(reasons)

    def verdict(self, look: Look, reasons: Sequence[str] = ()) -> Verdict:
        """Return the verdict that a look gives."""
        if not look.found:
            return self._undecided(reasons)
        notes = contention_note(look.sides)
        found, sides = list(look.found), look.sides
        if look.by_cpu_time:
            notes.append("judged by its CPU time")
        elif _looks_faster(found[0], sides):
            found[0] = replace(found[0], kind=PASS)
            notes.append(FASTER)
        reasons = [*notes, *reasons, *not_judged(found, self.rule.thresholds)]
        here, there = sides[-1].here, sides[-1].there
        verdict = build_verdict(
            found[0],
            found[1:],
            here.record.throughput.unit,
            (len(sides), len(sides)),
            found[0].threshold,
            [*differences(here.record, there.record), *reasons],
            in_turns=True,
            by_cpu_time=look.by_cpu_time,
        )
        changed = changed_extra_info(here, there)
        return msgspec.structs.replace(verdict, extra_info=tuple(changed))

    def _undecided(self, reasons: Sequence[str]) -> Verdict:
        """Return the verdict on a case with too few usable pairs."""
        disturbed = [sides for sides in self.measured if not sides.usable]
        if disturbed:
            reasons = [_why_too_few(disturbed, len(self.measured)), *reasons]
        faster = both_orders(self.usable) and all(
            one.difference < 0 for one in pairs_of(self.usable, THROUGHPUT)
        )
        passes = faster and set(self.rule.thresholds) == {THROUGHPUT}
        return Verdict(
            PASS if passes else INCONCLUSIVE,
            before=typical([sample_in_pair(sides.there) for sides in self.measured], THROUGHPUT),
            now=typical([sample_in_pair(sides.here) for sides in self.measured], THROUGHPUT),
            unit=self.measured[-1].here.record.throughput.unit,
            processes=len(self.measured),
            processes_before=len(self.measured),
            in_turns=True,
            reasons=(FASTER, *reasons) if passes else tuple(reasons),
        )


def _looks_faster(found: MetricVerdict, sides: Sequence[Sides]) -> bool:
    """Return whether an undecided case was faster in each of its pairs: then it passes."""
    pairs = pairs_of(sides, THROUGHPUT)
    return found.kind == INCONCLUSIVE and all(one.difference < 0 for one in pairs)


def compare(
    sides: Sequence[Sides], rule: PairRule, by_cpu_time: bool = False
) -> List[MetricVerdict]:
    """Judge the throughput, which comes first, and each metric with a threshold.

    ``by_cpu_time``: the throughput by the CPU time of an item. Empty if there are too few pairs.
    """
    found: List[MetricVerdict] = []
    if not can_compare([one.here_first for one in sides]):
        return found
    for metric in (THROUGHPUT, *(name for name in SCALARS if name in rule.thresholds)):
        by_cpu = by_cpu_time and metric == THROUGHPUT
        pairs = cpu_pairs_of(sides) if by_cpu else pairs_of(sides, metric)
        if pairs:
            effect, threshold = paired_effect(pairs), rule.thresholds.get(metric)
            kind = UNJUDGED if threshold is None else kind_of(effect, threshold, rule.level)
            here, there = ([sample_in_pair(side) for side in all_of] for all_of in _both(sides))
            now, before = typical(here, metric), typical(there, metric)
            found.append(MetricVerdict(metric, kind, effect, before, now, threshold))
    return found


def _both(sides: Sequence[Sides]) -> Tuple[List[Benchmark], List[Benchmark]]:
    return [one.here for one in sides], [one.there for one in sides]


def kind_of(effect: Effect, threshold: float, level: float) -> str:
    """Return the kind of verdict for an effect, at the level of one look."""
    allowed = math.log1p(threshold)
    return decide(effect, allowed, detectable_change(threshold), level) or INCONCLUSIVE


def is_clear(found: MetricVerdict) -> bool:
    """Return whether a metric needs no more pairs."""
    return precise(found.effect) if found.threshold is None else found.kind != INCONCLUSIVE


def precise(effect: Effect) -> bool:
    """Return whether the 95% interval is narrow enough without a threshold."""
    low, high = effect.interval()
    return high - low <= 2 * SHOWN_PRECISION


def too_many_disturbed(usable: int, measured: int) -> bool:
    """Return whether to stop, because other programs disturb too many pairs."""
    disturbed = measured - usable
    return disturbed >= MOST_DISTURBED and disturbed > usable


def contention_note(measured: Sequence[Sides]) -> List[str]:
    """Return a note on how much other programs took of the compared rounds, if that is much.

    They took it from both sides equally. The change holds next to these programs; without them it
    may differ. If whole processes alternate, only clean rounds are compared.
    """
    rounds = [sides.rounds for sides in measured if sides.rounds is not None]
    share = statistics.median(one.taken(compared=True) for one in rounds) if rounds else 0.0
    if share < SHOWN_SHARE:
        return []
    return [f"other programs took {_share_text(share)} of the rounds' time, on both sides alike"]


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


def _share_text(share: float) -> str:
    """Return a share as text; several waiting threads can push it above 100%."""
    return percent(min(1.0, share), 0)
