"""Judges a case by its CPU time, if other programs hold the CPUs. Pure functions.

Other programs lengthen a round, but hardly change the CPU time that the case itself uses. CPU time
is evidence only for a case that computes all the time: otherwise it could wait longer, or use fewer
threads, and use no more CPU time. Such a case uses its number of threads times the time of a round,
less the time that its threads wait for a CPU.

Next to other programs a case uses somewhat more CPU time, because caches are colder. So it may be
called slower only if both sides lost about the same share of their time to other programs.
"""

from __future__ import annotations

from statistics import fmean, median
from typing import List, Optional, Sequence

from ipubench.plugins.gate.countable import LEAST_FRESH, is_clean
from ipubench.plugins.gate.inference import Effect, decide, effect
from ipubench.plugins.gate.metric_verdict import log_seconds
from ipubench.plugins.gate.rounds import AdjacentRounds, equally_disturbed
from ipubench.plugins.record.structs import Process
from ipubench.plugins.record.verdict import IMPROVED, PASS, REGRESSED

#: A case computes all the time if its busy threads are a whole number, within this share.
TOLERANCE = 0.03
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
    here, there = (
        [
            (used + waited) / seconds
            for seconds, used, waited in zip(side.seconds, side.cpu_seconds, side.waited)
            if used is not None and waited is not None
        ]
        for side in (rounds.here, rounds.there)
    )
    if min(len(here), len(there)) < len(rounds.here_first) or not here:
        return None
    threads = busy_threads(median(here))
    if threads is None or threads != busy_threads(median(there)):
        return None
    return rounds.cpu_effect()


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
