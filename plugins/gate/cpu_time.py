"""Judges disturbed processes by the CPU time per item.

Other programs take CPUs away, which lengthens a round. The CPU time that the case itself uses
changes less: caches are colder, and threads that wait for a preempted one may spin. A baseline
shows how much, because some of its processes ran next to busy programs. Any growth beyond that
comes from the code.

This can prove that a case is slower, but not that it is as fast: waiting uses no CPU time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean
from typing import List, Optional, Sequence

from ipubench.plugins.gate.countable import LEAST_FRESH, same_copy, usual_copy
from ipubench.plugins.gate.inference import Effect, effect
from ipubench.plugins.gate.metric_verdict import log_seconds
from ipubench.plugins.record.structs import Process

#: Disturbed processes that a baseline needs to show how a case behaves next to other programs.
LEAST_DISTURBED = 2
#: Extra allowance for equal code, as a log: other programs may disturb it more than those did.
UNSEEN = math.log1p(0.07)
#: A process that lost more than this multiple of the baseline's loss is left out.
MOST_LOST = 1.25
#: If a process lost less than this multiple, a drop in CPU time is not expected.
LEAST_LOST = 0.7


@dataclass(frozen=True)
class Growth:
    """The growth of the CPU time per item beyond what other programs explain, as a log."""

    effect: Effect
    allowed: float
    level: float

    @property
    def suspect(self) -> bool:
        """Whether there is any growth, so that more processes may prove it."""
        return self.effect.change > 0

    @property
    def proved(self) -> bool:
        """Whether the growth exceeds the allowance and is significant."""
        return self.effect.change > self.allowed and self.effect.bound(1 - self.level) > 0


def growth(
    before: Sequence[Process],
    disturbed: Sequence[Process],
    now: Sequence[Process],
    assumed: float,
    canary: bool,
    allowed: float,
    level: float,
) -> Optional[Growth]:
    """Return the growth of the CPU time per item; None if there are too few processes.

    ``before`` are the clean processes of the baseline, ``disturbed`` its others, and ``now`` all
    fresh ones. A process counts if it ran in the machine state of ``before``; one of ``now`` must
    also have lost no more than the baseline's did. Next to other programs a case may use less CPU
    time, because its threads spin less. That is expected only if it loses as much now.
    """
    copy = usual_copy(before)
    disturbed = [one for one in disturbed if same_copy(one, copy)]
    beside = _costs(disturbed, canary)
    if len(beside) < LEAST_DISTURBED:
        return None
    lost = [sample.lost or 0.0 for sample in disturbed]
    most = MOST_LOST * max(lost)
    now = [one for one in now if same_copy(one, copy) and (one.lost or 0.0) <= most]
    usual, found = _costs(before, canary), _costs(now, canary)
    if not usual or len(found) < LEAST_FRESH:
        return None
    explained = max(beside) - fmean(usual)
    if min(one.lost or 0.0 for one in now) < LEAST_LOST * min(lost):
        explained = max(0.0, explained)
    explained += UNSEEN
    change = effect(usual, found, assumed)
    beyond = Effect(change.change - explained, change.error, change.degrees)
    return Growth(beyond, allowed, level)


def _costs(side: Sequence[Process], canary: bool) -> List[float]:
    """Return the log of the CPU seconds per item, for each process that has them."""
    return [log_seconds(one.cpu_seconds, one, canary) for one in side if one.cpu_seconds]
