"""Which rounds other programs disturbed, and whether enough clean ones are left.

A round is disturbed where others took more than ``LIMIT`` of its time. It stays in the record, and
no figure is made of it: docs/explanation/measurement.md says how that limit was chosen. Nor is one
made of rounds whose CPUs shared cores together with rounds whose CPUs did not.
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Sequence

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.devices.base import Device
from ipubench.fixtures.machine.contention import Contention, Taken, between, per_interval
from ipubench.fixtures.machine.shared_cores import same_state

#: The share of a round's time that others may take from a clean round.
LIMIT = 0.02
#: A budget stretches to so many times itself until enough rounds are clean.
STRETCH = 3.0
#: Fewer clean rounds are not enough, unless fewer were asked for ...
LEAST_ROUNDS = 3
#: ... and neither are those that fill less of the budget, unless they are this many.
LEAST_SHARE, MANY_ROUNDS = 0.5, 20
#: The machine is quiet while others use less than this share of its CPUs, in one look.
QUIET, LOOK_SECONDS = 0.03, 1.0
UNKNOWN = "this system does not count how long threads wait"


@dataclass
class Disturbance:
    """What others took from each round of one case, and whether its CPUs shared cores."""

    contention: Optional[Contention]
    #: Returns how much longer all CPUs take together than one alone (SharedCores.read).
    cores: Optional[Callable[[], float]] = None
    #: Of each reading.
    ratios: List[float] = field(default_factory=list)

    @classmethod
    def of(cls, device: Device) -> Disturbance:
        """Watch the host of a device."""
        return cls(device.contention(), device.shared_cores())

    def read(self) -> None:
        """Read the counters: before the first round and after each."""
        if self.contention is not None:
            self.contention.read()
        if self.cores is not None:
            self.ratios.append(self.cores())

    def taken(self) -> List[Taken]:
        """Return what was taken from each round; empty where nothing is known."""
        return [] if self.contention is None else per_interval(self.contention.readings)

    def around(self, rounds: int) -> List[float]:
        """Return of each round the larger ratio of just before it and just after; 1 if unknown."""
        found = [max(pair) for pair in zip(self.ratios, self.ratios[1:])][:rounds]
        return found + [1.0] * (rounds - len(found))

    def kept(self, rounds: int) -> List[bool]:
        """Tell of each round whether figures are made of it.

        Not of those that others disturbed; nor of those whose CPUs shared cores where most had
        their own, or the other way round: the two take different times.
        """
        lost = [one.lost for one in self.taken()]
        lost += [0.0] * (rounds - len(lost))
        left_alone = [share <= LIMIT for share in lost[:rounds]]
        ratios = self.around(rounds)
        usual = _usual(ratios, left_alone)
        return [alone and same_state(one, usual) for alone, one in zip(left_alone, ratios)]

    def clean(self, seconds: Sequence[float]) -> List[float]:
        """Return the seconds of the rounds that figures are made of."""
        return [value for value, kept in zip(seconds, self.kept(len(seconds))) if kept]

    def describe_whole(self, rounds: int) -> Dict[str, Any]:
        """Return the same of work that was watched as a whole, for each of its rounds."""
        if self.contention is None:
            return {"unknown": UNKNOWN}
        (taken,) = self.taken()
        enough = taken.lost <= LIMIT
        return {
            **self.describe([0.0], enough),
            "lost": [round(taken.lost, 4)] * rounds,
            "kept": [enough] * rounds,
            "clean": rounds if enough else 0,
        }

    def describe(self, seconds: Sequence[float], enough: bool) -> Dict[str, Any]:
        """Return this part of a record, as shares of the wall time.

        ``lost`` is of each round, and so are ``cpu_seconds``, which all of our processes used, and
        ``kept``. ``core_ratio`` is that of the kept rounds.
        """
        if self.contention is None:
            return {"unknown": UNKNOWN}
        taken = self.taken()[: len(seconds)]
        readings = self.contention.readings
        whole = between(readings[0], readings[-1])
        kept = self.kept(len(seconds))
        return {
            "limit": LIMIT,
            "lost": [round(one.lost, 4) for one in taken],
            "cpu_seconds": [
                round(after.ours - before.ours, 6)
                for before, after in zip(readings, readings[1 : len(taken) + 1])
            ],
            "kept": kept,
            "clean": sum(kept),
            "enough": enough,
            "by_others": round(whole.by_others, 4),
            "waited": round(whole.waited, 4),
            "stolen": round(whole.stolen, 4),
            "beside": round(whole.beside, 4),
            "throttled": round(whole.throttled, 4),
            "reading_seconds": round(self.contention.seconds, 6),
            **self._cores(kept),
        }

    def _cores(self, kept: Sequence[bool]) -> Dict[str, Any]:
        if not self.ratios:
            return {}
        return {
            "core_ratios": [round(ratio, 2) for ratio in self.ratios[: len(kept) + 1]],
            "core_ratio": round(_usual(self.around(len(kept)), kept), 2),
        }


def _usual(ratios: Sequence[float], chosen: Sequence[bool]) -> float:
    """Return the middle one of the chosen ratios, never one between two states."""
    found = [ratio for ratio, is_chosen in zip(ratios, chosen) if is_chosen]
    return statistics.median_low(found) if found else 1.0


def is_enough(clean: Sequence[float], rounds: int, budget: float) -> bool:
    """Tell whether a process may be judged by its clean rounds, of ``rounds`` in all."""
    if len(clean) < min(LEAST_ROUNDS, max(1, rounds)):
        return False
    if len(clean) >= MANY_ROUNDS or 2 * len(clean) >= rounds:
        return True
    return math.fsum(clean) >= LEAST_SHARE * budget


def wait_for_quiet(
    device: Device, most_seconds: Optional[float], progress: Callable[[str], None]
) -> None:
    """Return once others leave the machine alone; CaseError if they do not within the time.

    Without a time nothing is waited for.
    """
    if most_seconds is None:
        return
    contention = device.contention()
    if contention is None:
        raise CaseError(f"--wait-for-quiet: {UNKNOWN}; leave it out")
    deadline = time.monotonic() + most_seconds
    before = contention.read()
    while True:
        progress("waiting until the machine is quiet")
        time.sleep(LOOK_SECONDS)
        after = contention.read()
        taken = between(before, after)
        # Nothing of ours runs, so nothing of ours waits: what others use is what they would take.
        used = (taken.by_others + taken.stolen) / contention.cpu_count
        if used <= QUIET:
            return
        if time.monotonic() > deadline:
            raise CaseError(
                f"the machine was not quiet within {most_seconds:g} s: others used {used:.0%} of "
                f"its {contention.cpu_count} CPUs in the last second; wait longer with "
                "--wait-for-quiet, end what runs beside this, or compare with --against, which "
                "measures both sides at one time"
            )
        before = after
