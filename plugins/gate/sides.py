"""The pairs of processes that have measured a case, one here and one there. Pure functions."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import List, NamedTuple, Optional, Sequence

from ipubench.plugins.gate.countable import is_clean, same_copy
from ipubench.plugins.gate.cpu_time import change_in_rounds, is_far_slower
from ipubench.plugins.gate.inference import Effect
from ipubench.plugins.gate.metric_verdict import log_cost
from ipubench.plugins.gate.rounds import AdjacentRounds
from ipubench.plugins.record.differences import (
    at_once,
    changed_extra_info,
    changed_settings,
    other_items,
    same_latency,
)
from ipubench.plugins.record.record import THROUGHPUT, sample_of
from ipubench.plugins.record.structs import Benchmark, Process

#: Fewer pairs give no useful estimate of their spread.
LEAST_PAIRS = 3
#: The rounds of the next pair take at most this multiple of those so far.
MOST_GROWTH = 2.0


class Sides(NamedTuple):
    """One pair: the benchmarks of a process here and one there, and which went first.

    ``rounds`` are those of both if they alternated; None if whole processes did. ``alone``: whether
    no other case ran in these processes.
    """

    here: Benchmark
    there: Benchmark
    here_first: bool = True
    rounds: Optional[AdjacentRounds] = None
    alone: bool = True

    @property
    def usable(self) -> bool:
        """Whether enough of the pair is undisturbed to compare."""
        if self.rounds is not None:
            return self.rounds.enough
        here, there = sample_in_pair(self.here), sample_in_pair(self.there)
        return is_clean(here) and is_clean(there) and same_copy(here, there.copy_ms)

    @property
    def lost(self) -> float:
        """The share of the rounds' time that other programs took."""
        if self.rounds is not None:
            return self.rounds.taken()
        samples = [sample_in_pair(one) for one in (self.here, self.there)]
        return max(sample.lost or 0.0 for sample in samples)


@dataclass(frozen=True)
class Pair:
    """The difference of a case's costs (logarithms), here minus there."""

    difference: float
    here_first: bool


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


def pairs_of(measured: Sequence[Sides], metric: str) -> List[Pair]:
    """Return the pairs of a metric; empty if a side lacks it.

    The canary does not correct them, unlike processes of a stored baseline: a pair is measured at
    one time, and the other side's NumPy may run the canary at a different speed.
    """
    pairs = []
    for sides in measured:
        if metric == THROUGHPUT and sides.rounds is not None:
            pairs.append(Pair(sides.rounds.effect().change, sides.here_first))
            continue
        here = log_cost(sample_in_pair(sides.here), metric, canary=False)
        there = log_cost(sample_in_pair(sides.there), metric, canary=False)
        alike = metric != "latency_p99" or same_latency(sides.here.record, sides.there.record)
        if here is None or there is None or not alike:
            return []
        pairs.append(Pair(here - there, sides.here_first))
    return pairs


def both_orders(sides: Sequence[Sides]) -> bool:
    """Return whether each side went first in at least one of the pairs."""
    return len({one.here_first for one in sides}) == 2


def can_compare(here_first: Sequence[bool]) -> bool:
    """Return whether there are enough pairs, in both orders, to compare."""
    return len(here_first) >= LEAST_PAIRS and len(set(here_first)) == 2


def here_is_next(usable: Sequence[bool], measured: Sequence[bool]) -> bool:
    """Return whether the next pair begins here: the side that went first less often does.

    Counts the ``usable`` pairs, and in a tie all ``measured`` ones.
    """
    ahead = [sum(1 if first else -1 for first in firsts) for firsts in (usable, measured)]
    return ahead <= [0, 0]


def cpu_pairs_of(measured: Sequence[Sides]) -> List[Pair]:
    """Return the pairs by the CPU time of an item: only those in which it is evidence."""
    pairs = []
    for sides in measured:
        found = None if sides.rounds is None else change_in_rounds(sides.rounds)
        if found is not None:
            pairs.append(Pair(found.change, sides.here_first))
    return pairs


def is_far(sides: Sides) -> bool:
    """Return whether a pair, whose CPU time is evidence, is that of a case several times slower."""
    return sides.rounds is not None and is_far_slower(sides.rounds)


def seconds_wanted(measured: Sequence[Sides], overhead: float) -> Optional[float]:
    """Return how many seconds of rounds another pair should have; None if unknown.

    More rounds narrow what differs within a pair of processes, and more pairs what differs between
    them. ``overhead``: the seconds that a pair takes without its rounds. A comparison takes the
    least time if the number of rounds is the root of two quotients: overhead by seconds of a round,
    times variance within pairs by variance between them (Kalibera and Jones, Rigorous benchmarking
    in reasonable time, ISMM 2013).
    """
    effects = [one.rounds.effect() for one in measured if one.rounds is not None and one.usable]
    seconds = [one.rounds.seconds for one in measured if one.rounds is not None and one.usable]
    if len(effects) < LEAST_PAIRS:
        return None
    within = statistics.fmean(one.error**2 for one in effects)
    between = statistics.variance(one.change for one in effects) - within
    so_far = statistics.fmean(seconds)
    most = MOST_GROWTH * so_far  # few pairs show little of a variance
    return most if between <= 0 else min(most, math.sqrt(overhead * so_far * within / between))


def sample_in_pair(benchmark: Benchmark) -> Process:
    """Return the measurements of one side."""
    return sample_of(benchmark, fresh=True)
