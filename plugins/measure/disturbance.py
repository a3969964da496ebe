"""Finds the rounds that other programs disturbed, and whether enough clean ones are left.

A round is disturbed if others took more than ``LIMIT`` of its time (docs/explanation/measurement.md
has the reason for that limit). It stays in the record but does not count. The same is true of
rounds that found the machine in another state than most (fixtures/machine/state.py).
"""

from __future__ import annotations

import math
import time
from typing import Callable, List, Optional, Sequence

from msgspec.structs import replace

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.devices.base import Device
from ipubench.fixtures.machine.contention import between
from ipubench.fixtures.machine.state import same_state, usual
from ipubench.fixtures.machine.watch import Watch
from ipubench.plugins.record.structs import Contention, Quiet

#: The share of a round's time that others may take from a clean round.
LIMIT = 0.02
#: Until enough rounds are clean, a budget stretches by up to this factor.
STRETCH = 3.0
#: Shorter budgets, in seconds, do not stretch: their users want a quick result.
LEAST_STRETCHED = 1.0
#: Fewer clean rounds are not enough, unless the user asked for fewer.
LEAST_ROUNDS = 3
#: Clean rounds have to fill this share of the budget, or be this many.
LEAST_SHARE, MANY_ROUNDS = 0.5, 20
#: The machine is quiet while others use less than this share of its CPUs.
QUIET, LOOK_SECONDS = 0.03, 1.0
UNKNOWN = "this system does not count how long threads wait"


class Disturbance(Watch):
    """For each round of a case: the time that others took, and the machine's state."""

    @classmethod
    def of(cls, device: Device) -> Disturbance:
        """Watch the host of a device, if it counts what others take."""
        contention = device.contention()
        return cls(contention, None if contention is None else device.look())

    def kept(self, rounds: int) -> List[bool]:
        """Return, for each round, whether it counts.

        A round does not count if others disturbed it, or if the machine was in another state than
        in most rounds.
        """
        if self.contention is None:
            return [True] * rounds
        kept = [one.lost <= LIMIT for one in self.taken()]
        copy = self.copy(kept)
        if copy is None:
            return kept
        return [one and same_state(now, copy) for one, now in zip(kept, self.around())]

    def copy(self, chosen: Sequence[bool]) -> Optional[float]:
        """Return the usual time of the copy around the chosen rounds; None if there is none."""
        found = [now for now, one in zip(self.around(), chosen) if one]
        return usual(found) if found else None

    def clean(self, seconds: Sequence[float]) -> List[float]:
        """Return the seconds of the rounds that count."""
        return [value for value, kept in zip(seconds, self.kept(len(seconds))) if kept]

    def describe_at_once(self, rounds: int) -> Contention:
        """Return the same as :meth:`describe` if all rounds together were watched as one."""
        if self.contention is None:
            return Contention(unknown=UNKNOWN)
        (taken,) = self.taken()
        enough = taken.lost <= LIMIT
        return replace(
            self.describe([0.0], enough),
            lost=[round(taken.lost, 4)] * rounds,
            kept=[enough] * rounds,
            clean=rounds if enough else 0,
        )

    def describe(self, seconds: Sequence[float], enough: bool) -> Contention:
        """Return this part of a record, as shares of the wall time.

        ``cpu_seconds``: used by all of our processes. ``copy_ms``: of the kept rounds.
        """
        if self.contention is None:
            return Contention(unknown=UNKNOWN)
        readings = self.contention.readings
        total = between(readings[0], readings[-1])
        kept = self.kept(len(seconds))
        copy = self.copy(kept) if self.copies else None
        return Contention(
            limit=LIMIT,
            lost=[round(one.lost, 4) for one in self.taken()],
            cpu_seconds=[round(used, 6) for used in self.cpu_seconds()],
            kept=kept,
            clean=sum(kept),
            enough=enough,
            by_others=round(total.by_others, 4),
            waited=round(total.waited, 4),
            stolen=round(total.stolen, 4),
            beside=round(total.beside, 4),
            throttled=round(total.throttled, 4),
            reading_seconds=round(self.contention.seconds, 6),
            copies_ms=[round(one, 4) for one in self.copies] or (),
            copy_ms=None if copy is None else round(copy, 4),
        )


def longest(budget: float) -> float:
    """Return the seconds that rounds may take on a disturbed machine."""
    return budget if budget < LEAST_STRETCHED else STRETCH * budget


def is_enough(clean: Sequence[float], rounds: int, budget: float) -> bool:
    """Return whether ``clean`` rounds, out of ``rounds`` in all, are enough for a verdict."""
    if len(clean) < min(LEAST_ROUNDS, rounds):
        return False
    if len(clean) >= MANY_ROUNDS or 2 * len(clean) >= rounds:
        return True
    return math.fsum(clean) >= LEAST_SHARE * budget


def wait_for_quiet(device: Device, most_seconds: float, progress: Callable[[str], None]) -> Quiet:
    """Wait at most ``most_seconds`` until the machine is quiet; return a part of the record.

    Raises CaseError if this system does not count the time that others take.
    """
    contention = device.contention()
    if contention is None:
        raise CaseError(f"--wait-for-quiet: {UNKNOWN}; leave it out")
    start = time.monotonic()
    before = contention.read()
    while True:
        progress("waiting until the machine is quiet")
        time.sleep(LOOK_SECONDS)
        after = contention.read()
        taken = between(before, after)
        # We are idle now, so all that others use is what they would take from us.
        used = (taken.by_others + taken.stolen) / contention.cpu_count
        waited = time.monotonic() - start
        if used <= QUIET or waited > most_seconds:
            return Quiet(used <= QUIET, round(waited, 1), round(used, 4))
        before = after
