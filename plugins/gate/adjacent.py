"""Rounds of two processes that took turns: what one pair of processes says. Pure functions.

The k-th rounds of both sides follow one another within a fraction of a second, so the machine's
drift is in both and their difference is without it. Which side comes first changes from pair of
rounds to pair of rounds, equally often. All of them share two processes, whose memory layouts they
cannot average over: for the code, one pair of processes is one value (plugins/gate/paired.py).
"""

from __future__ import annotations

import math
import statistics
from typing import List, Optional, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ipubench.fixtures.machine.state import same_state
from ipubench.plugins.gate.inference import Effect, Trimmed

#: Two adjacent rounds of which others took so much more from one than from the other, as shares of
#: the time, are no comparison. What they took from both alike is in both, however much it is:
#: docs/explanation/noise-study.md shows that it costs no wrong answers.
MOST_UNEQUAL = 0.10
#: Fewer comparable pairs of rounds say nothing; of all, at least this share must be comparable.
LEAST_COMPARABLE = 4
LEAST_SHARE = 0.25
#: So many, before their own interval may end them.
LEAST_FOR_PRECISION = 12
#: How much of its time a pair may spend on rounds that are left out, as a multiple of its budget.
STRETCH = 2.0


class Side(Struct):
    """The rounds of one process, in order: seconds, and the shares of the time that others took.

    ``by_others``: CPU time of other programs; ``waited``: for which our threads had no CPU;
    ``lost``: what of it was taken from us (fixtures/machine/contention.py). ``cpu_seconds`` are
    those that the process itself used. All are None where the system does not count them.
    """

    seconds: List[float] = []
    lost: List[Optional[float]] = []
    by_others: List[Optional[float]] = []
    waited: List[Optional[float]] = []
    cpu_seconds: List[Optional[float]] = []
    #: Milliseconds of a copy round each round: the machine's state; empty where unknown.
    copies_ms: List[float] = []


class AdjacentRounds(Struct):
    """Rounds here and there, of which the k-th are adjacent; ``here_first`` says in which order.

    ``items_here`` and ``items_there``: per round.
    """

    here: Side = msgspec.field(default_factory=Side)
    there: Side = msgspec.field(default_factory=Side)
    here_first: List[bool] = []
    items_here: float = 1.0
    items_there: float = 1.0
    stopped_by: str = ""
    #: In the journal: which pairs of rounds decided.
    compared: List[bool] = []

    def decided(self) -> AdjacentRounds:
        """Return what the journal keeps, which says which rounds decide."""
        return replace(self, compared=self.comparable())

    def comparable(self) -> List[bool]:
        """Return of each pair of rounds whether its halves were equally disturbed.

        Both halves also found the machine in one state.
        """
        lost = zip(self.here.lost, self.there.lost)
        equally = [equally_disturbed(here, there) for here, there in lost]
        if not self.here.copies_ms:
            return equally
        same = map(same_state, self.here.copies_ms, self.there.copies_ms)
        return [one and state for one, state in zip(equally, same)]

    @property
    def enough(self) -> bool:
        """Whether enough pairs of rounds, of both orders, are comparable to say anything."""
        kept = self.comparable()
        orders = {first for first, compared in zip(self.here_first, kept) if compared}
        return sum(kept) >= max(LEAST_COMPARABLE, LEAST_SHARE * len(kept)) and len(orders) == 2

    def effect(self) -> Effect:
        """Return how much more a round costs here than there, in these two processes.

        It is the mean of the two orders' means, so that being first cancels. Means are trimmed,
        because one disturbed round must not decide. There must be :attr:`enough`.
        """
        seconds = zip(self.here.seconds, self.there.seconds)
        return self._balanced(
            [math.log(here / there) for here, there in seconds], self.comparable()
        )

    def cpu_effect(self) -> Optional[Effect]:
        """Return the same of the CPU time that a round uses, over all rounds; None if unknown.

        Code that does more uses more of it, and what other programs take changes it little. But
        code may also wait longer, or use fewer threads, and use no more CPU time.
        """
        used = list(zip(self.here.cpu_seconds, self.there.cpu_seconds))
        values = [math.log(here / there) for here, there in used if here and there]
        if len(values) < len(self.here_first) or len(set(self.here_first)) < 2:
            return None
        return self._balanced(values, [True] * len(values))

    def _balanced(self, values: Sequence[float], kept: Sequence[bool]) -> Effect:
        """Return the mean of the two orders' trimmed means, per item."""
        items = math.log(self.items_here / self.items_there)
        orders = [
            Trimmed.of(
                [
                    value - items
                    for value, compared, first in zip(values, kept, self.here_first)
                    if compared and first == order
                ]
            )
            for order in (True, False)
        ]
        variance = math.fsum(one.squares / (one.count * max(1, one.count - 1)) for one in orders)
        degrees = max(1, sum(one.count for one in orders) - 2)
        change = statistics.fmean(one.mean for one in orders)
        return Effect(change, math.sqrt(variance) / 2, degrees)

    def looks(self, steps: Optional[int]) -> bool:
        """Tell whether it is time to ask for the reason to stop: at every twentieth part.

        Looking costs more the more rounds there are.
        """
        count = len(self.here_first)
        if steps is not None:
            return count >= steps
        return count >= LEAST_COMPARABLE and not (count // 2) % max(1, count // 40)

    def stop_reason(self, budget: float, precision: float, steps: Optional[int]) -> str:
        """Return why no more rounds are wanted ('steps', 'precision', 'budget', 'disturbed') or ''.

        ``budget`` is the seconds of comparable rounds, of both sides. They end at half of the
        ``precision`` that is asked for: pairs of processes differ by more, so that further pairs
        narrow the answer, and further rounds of this one do not.
        """
        if steps is not None:
            return "steps" if len(self.here_first) >= steps else ""
        kept = self.comparable()
        spent = [a + b for a, b in zip(self.here.seconds, self.there.seconds)]
        if self.enough:
            if sum(kept) >= LEAST_FOR_PRECISION:
                low, high = self.effect().interval()
                if (high - low) / 2 <= precision / 2:
                    return "precision"
            if math.fsum(s for s, compared in zip(spent, kept) if compared) >= budget:
                return "budget"
        # A pair without any comparable rounds is given up sooner.
        most = (1 + STRETCH) * budget if any(kept) else budget
        return "disturbed" if math.fsum(spent) >= most else ""

    def taken(self, compared: bool = False) -> float:
        """Return the median of the share that others took, over the rounds of both sides.

        ``compared``: over those that are compared only.
        """
        kept = self.comparable() if compared else [True] * len(self.here_first)
        known = [
            share
            for side in (self.here, self.there)
            for share, counts in zip(side.lost, kept)
            if counts and share is not None
        ]
        return statistics.median(known) if known else 0.0


def equally_disturbed(here: Optional[float], there: Optional[float]) -> bool:
    """Tell whether two adjacent rounds may be compared, by the shares that others took of them.

    They may where the system does not count what others take.
    """
    if here is None or there is None:
        return True
    return abs(here - there) <= MOST_UNEQUAL
