"""Which rounds other programs disturbed, and whether enough clean ones are left.

A round is disturbed where others took more than ``LIMIT`` of its time. It stays in the record, and
no figure is made of it: docs/explanation/measurement.md says how that limit was chosen. Nor is one
made of rounds that found the machine in another state than most (fixtures/machine/state.py).
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
#: A budget stretches to so many times itself until enough rounds are clean.
STRETCH = 3.0
#: A budget of fewer seconds is kept: whoever gives so little wants a quick answer.
LEAST_STRETCHED = 1.0
#: Fewer clean rounds are not enough, unless fewer were asked for ...
LEAST_ROUNDS = 3
#: ... and neither are those that fill less of the budget, unless they are this many.
LEAST_SHARE, MANY_ROUNDS = 0.5, 20
#: The machine is quiet while others use less than this share of its CPUs, in one look.
QUIET, LOOK_SECONDS = 0.03, 1.0
UNKNOWN = "this system does not count how long threads wait"


class Disturbance(Watch):
    """What others took from each round of one case, and in which state each found the machine."""

    @classmethod
    def of(cls, device: Device) -> Disturbance:
        """Watch the host of a device; not at all where it counts nothing, as the record says."""
        contention = device.contention()
        return cls(contention, None if contention is None else device.look())

    def kept(self, rounds: int) -> List[bool]:
        """Tell of each round whether figures are made of it.

        Not of those that others disturbed; nor of those that found the machine in another state
        than most did: they take other times.
        """
        if self.contention is None:
            return [True] * rounds
        kept = [one.lost <= LIMIT for one in self.taken()]
        copy = self.copy(kept)
        if copy is None:
            return kept
        return [one and same_state(now, copy) for one, now in zip(kept, self.around())]

    def copy(self, chosen: Sequence[bool]) -> Optional[float]:
        """Return the usual copy's time round the chosen rounds, None where nothing is known."""
        found = [now for now, one in zip(self.around(), chosen) if one]
        return usual(found) if found else None

    def clean(self, seconds: Sequence[float]) -> List[float]:
        """Return the seconds of the rounds that figures are made of."""
        return [value for value, kept in zip(seconds, self.kept(len(seconds))) if kept]

    def describe_whole(self, rounds: int) -> Contention:
        """Return the same of work that was watched as a whole, for each of its rounds."""
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

        ``cpu_seconds`` are those that all of our processes used; ``copy_ms`` is of the kept rounds.
        """
        if self.contention is None:
            return Contention(unknown=UNKNOWN)
        readings = self.contention.readings
        whole = between(readings[0], readings[-1])
        kept = self.kept(len(seconds))
        copy = self.copy(kept) if self.copies else None
        return Contention(
            limit=LIMIT,
            lost=[round(one.lost, 4) for one in self.taken()],
            cpu_seconds=[round(used, 6) for used in self.cpu_seconds()],
            kept=kept,
            clean=sum(kept),
            enough=enough,
            by_others=round(whole.by_others, 4),
            waited=round(whole.waited, 4),
            stolen=round(whole.stolen, 4),
            beside=round(whole.beside, 4),
            throttled=round(whole.throttled, 4),
            reading_seconds=round(self.contention.seconds, 6),
            copies_ms=[round(one, 4) for one in self.copies] or (),
            copy_ms=None if copy is None else round(copy, 4),
        )


def longest(budget: float) -> float:
    """Return the seconds that rounds may take if others disturb them."""
    return budget if budget < LEAST_STRETCHED else STRETCH * budget


def is_enough(clean: Sequence[float], rounds: int, budget: float) -> bool:
    """Tell whether a process may be judged by its clean rounds, of ``rounds`` in all."""
    if len(clean) < min(LEAST_ROUNDS, rounds):
        return False
    if len(clean) >= MANY_ROUNDS or 2 * len(clean) >= rounds:
        return True
    return math.fsum(clean) >= LEAST_SHARE * budget


def wait_for_quiet(device: Device, most_seconds: float, progress: Callable[[str], None]) -> Quiet:
    """Wait until others leave the machine alone, for so long at most; return a part of the record.

    Raises CaseError where nothing is counted.
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
        # Nothing of ours runs, so nothing of ours waits: what others use is what they would take.
        used = (taken.by_others + taken.stolen) / contention.cpu_count
        waited = time.monotonic() - start
        if used <= QUIET or waited > most_seconds:
            return Quiet(used <= QUIET, round(waited, 1), round(used, 4))
        before = after
