"""Judges a case by its CPU time, if other programs hold the CPUs. Pure functions.

Other programs lengthen a round, but hardly change the CPU time that the case itself uses. CPU time
is evidence only for a case that computes all the time: otherwise it could wait longer, or use fewer
threads, and use no more CPU time. Such a case uses its number of threads times the time of a round,
less the time that its threads wait for a CPU.

A case that is many times slower needs no such condition: its CPU time alone is more than its time
was (is_far_slower).

Next to other programs a case uses somewhat more CPU time, because caches are colder. So it may be
called slower only if both sides lost about the same share of their time to other programs.
"""

from __future__ import annotations

import math
from statistics import fmean, median
from typing import List, Optional, Sequence

from ipubench.plugins.gate.countable import LEAST_FRESH, is_clean
from ipubench.plugins.gate.inference import Effect, decide, effect
from ipubench.plugins.gate.metric_verdict import log_seconds
from ipubench.plugins.gate.rounds import AdjacentRounds, Side, equally_disturbed
from ipubench.plugins.record.structs import Process
from ipubench.plugins.record.verdict import IMPROVED, PASS, REGRESSED

#: A case computes all the time if its busy threads are a whole number, within this share.
TOLERANCE = 0.03
#: Other programs share the caches, but do not make a case use this many times its CPU time.
MOST_COLDER = 2.0
#: Disturbed processes of a baseline that a slower case needs.
LEAST_ALIKE = 2


def busy_threads(busy: float) -> Optional[int]:
    """Return the number of threads of a case that computes all the time; None if it does not.

    ``busy``: the CPU time of a round, and the time that its threads waited for a CPU, as a multiple
    of the round's time.
    """
    threads = round(busy)
    whole = threads >= 1 and abs(busy - threads) <= TOLERANCE * threads
    return threads if whole else None


def change_in_rounds(rounds: AdjacentRounds) -> Optional[Effect]:
    """Return the change of the CPU time of an item in alternating rounds; None if no evidence."""
    here, there = _busy(rounds.here), _busy(rounds.there)
    if min(len(here), len(there)) < len(rounds.here_first) or not here:
        return None
    threads = busy_threads(median(here))
    alike = threads is not None and threads == busy_threads(median(there))
    return rounds.cpu_effect() if alike or is_far_slower(rounds) else None


def is_far_slower(rounds: AdjacentRounds) -> bool:
    """Return whether the case is several times slower, however much other programs disturbed it.

    Without them, an item takes at least its CPU time by the number of threads here, and took at
    most its time there. Needs rounds whose CPU time is known.
    """
    threads = max(1, math.ceil(median(_busy(rounds.here))))
    used = median(one for one in rounds.here.cpu_seconds if one is not None)
    least = used / threads / rounds.items_here
    return least > MOST_COLDER * median(rounds.there.seconds) / rounds.items_there


def _busy(side: Side) -> List[float]:
    """Return how many threads computed in each round, or would have if they had had a CPU."""
    return [
        (used + waited) / seconds
        for seconds, used, waited in zip(side.seconds, side.cpu_seconds, side.waited)
        if used is not None and waited is not None
    ]


class CpuEvidence:
    """The CPU time of disturbed processes and of a stored baseline."""

    def __init__(
        self, before: Sequence[Process], now: Sequence[Process], assumed: float, canary: bool
    ) -> None:
        """``before``: all processes of the baseline; ``now``: the fresh ones.

        ``assumed``: the standard deviation between processes; ``canary``: whether both sides have
        the same canary, which corrects for the machine's speed.
        """
        self._before, self._assumed, self._canary = before, assumed, canary
        self.now = [one for one in now if one.cpu_seconds]
        self._clean = [one for one in before if is_clean(one) and one.cpu_seconds]

    @property
    def counts(self) -> bool:
        """Whether the CPU time of these processes is evidence at all."""
        if len(self.now) < LEAST_FRESH or not self._clean:
            return False
        threads = {_threads(self._clean), _threads(self.now)}
        return None not in threads and len(threads) == 1

    def acquits(self, allowed: float, detectable_change: float, level: float) -> Optional[Effect]:
        """Return the change if it shows that the case is not slower.

        Other programs only add CPU time, so the baseline may have been undisturbed.
        """
        found = self._change(self._clean, canary=False)
        kind = decide(found, allowed, detectable_change, level)
        return found if kind in (PASS, IMPROVED) else None

    def convicts(self, allowed: float, detectable_change: float, level: float) -> Optional[Effect]:
        """Return the change if it shows that the case is slower."""
        lost = fmean(one.lost or 0.0 for one in self.now)
        alike = [
            one for one in self._before if one.cpu_seconds and equally_disturbed(one.lost, lost)
        ]
        if len(alike) < LEAST_ALIKE:
            return None
        found = self._change(alike, self._canary)
        kind = decide(found, allowed, detectable_change, level)
        return found if kind == REGRESSED else None

    def _change(self, before: Sequence[Process], canary: bool) -> Effect:
        return effect(_log_costs(before, canary), _log_costs(self.now, canary), self._assumed)


def _threads(side: Sequence[Process]) -> Optional[int]:
    shares = [(one.cpu_seconds or 0.0) / median(one.seconds) + (one.lost or 0.0) for one in side]
    return busy_threads(median(shares))


def _log_costs(side: Sequence[Process], canary: bool) -> List[float]:
    """Return the log of the CPU seconds per item of each process."""
    return [log_seconds(one.cpu_seconds or 0.0, one, canary) for one in side]
