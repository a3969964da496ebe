"""Is a case slower by the CPU time of an item? For processes that other programs disturbed.

Others take CPUs away, which lengthens a round. The CPU time that the case itself uses changes less:
caches are colder, and threads that wait for a preempted one may spin. A baseline shows how much
that is: some of its processes ran beside busy programs. What is beyond that is the code's own.

This can prove that a case is slower, never that it is not: waiting costs no CPU time.
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

#: Disturbed processes of a baseline that show how a case behaves beside other programs.
LEAST_DISTURBED = 2
#: What equal code may cost more than these show, as a log: other programs are other programs.
UNSEEN = math.log1p(0.07)
#: Processes that lost more than these times what the baseline's lost are beyond what is known, ...
MOST_LOST = 1.25
#: ... and those that lost less than these times bear others that cost them something else.
LEAST_LOST = 0.7


@dataclass(frozen=True)
class Growth:
    """How much more CPU time an item costs now than other programs explain, as a log."""

    effect: Effect
    allowed: float
    level: float

    @property
    def suspect(self) -> bool:
        """Whether it is more than others explain, so that more processes may prove it."""
        return self.effect.change > 0

    @property
    def proved(self) -> bool:
        """Whether it is more than is allowed, and certainly more than others explain."""
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
    """Return the growth of an item's CPU time; None if the baseline does not know enough.

    ``before`` are the clean processes of the baseline, ``disturbed`` its others, and ``now`` all
    fresh ones. Those count that found the machine in the state of ``before``, and of ``now`` those
    that lost no more than the baseline has seen. Beside others a case may use less CPU time,
    because its threads spin less: that is expected only if it loses as much now.
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
    """Return the log of each process's CPU seconds per item, of those that have any."""
    return [log_seconds(one.cpu_seconds, one, canary) for one in side if one.cpu_seconds]
