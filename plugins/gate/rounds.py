"""Compares two processes whose rounds alternate. Pure functions.

The k-th rounds of both sides follow each other within a fraction of a second, so the machine's
drift cancels in their difference. The side that goes first alternates from one pair of rounds to
the next. All rounds share the memory layouts of the same two processes, which more rounds cannot
average out; so each pair of processes counts as one value (plugins/gate/pairs.py).
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

#: Two adjacent rounds are not compared if other programs took this much more, as a share of the
#: time, from one than from the other. Equal disturbance cancels, however large it is
#: (docs/explanation/noise-study.md).
MOST_UNEQUAL = 0.10
#: A pair of processes needs this many comparable pairs of rounds, and this share of all.
LEAST_COMPARABLE = 4
LEAST_SHARE = 0.25
#: The interval may end the rounds only after this many.
LEAST_FOR_PRECISION = 12
#: A pair may spend this multiple of its budget on rounds that are left out.
STRETCH = 2.0


class Side(Struct):
    """The rounds of one process: seconds, and the shares of the time that others took.

    ``by_others``: CPU time of other programs; ``lost``: the part of it that this process lost
    (fixtures/machine/contention.py). ``cpu_seconds``: those that the process itself used;
    ``waited``: the seconds for which its threads had no CPU. All are None if the system does not
    count them, the last two also if a round has an untimed part.
    """

    seconds: List[float] = []
    lost: List[Optional[float]] = []
    by_others: List[Optional[float]] = []
    waited: List[Optional[float]] = []
    cpu_seconds: List[Optional[float]] = []
    #: Milliseconds of a copy around each round: the machine's state; empty where unknown.
    copies_ms: List[float] = []


class AdjacentRounds(Struct):
    """Rounds here and there; the k-th ones are adjacent, in the order of ``here_first``.

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
        """Return a copy for the journal, which marks the rounds that decide."""
        return replace(self, compared=self.comparable())

    def comparable(self) -> List[bool]:
        """Return, for each pair of rounds, whether it can be compared.

        Both rounds must be equally disturbed and run in the same machine state.
        """
        lost = zip(self.here.lost, self.there.lost)
        equally = [equally_disturbed(here, there) for here, there in lost]
        if not self.here.copies_ms:
            return equally
        same = map(same_state, self.here.copies_ms, self.there.copies_ms)
        return [one and state for one, state in zip(equally, same)]

    @property
    def is_long(self) -> bool:
        """Whether one or two rounds of each side took the whole budget."""
        return 1 <= len(self.here_first) <= 2 and self.stopped_by == "budget"

    @property
    def enough(self) -> bool:
        """Whether enough pairs of rounds, in both orders, are comparable.

        One or two are enough if they took the whole budget.
        """
        kept = self.comparable()
        if self.is_long:
            return all(kept)
        orders = {first for first, compared in zip(self.here_first, kept) if compared}
        return sum(kept) >= max(LEAST_COMPARABLE, LEAST_SHARE * len(kept)) and len(orders) == 2

    def effect(self) -> Effect:
        """Return the difference of the cost of a round, here minus there.

        It is the mean of both orders' means, which cancels the effect of going first. Means are
        trimmed, because one disturbed round must not decide. Needs :attr:`enough`.
        """
        seconds = zip(self.here.seconds, self.there.seconds)
        return self._balanced(
            [math.log(here / there) for here, there in seconds], self.comparable()
        )

    def cpu_effect(self) -> Optional[Effect]:
        """Return the same for the CPU time, over all rounds; None if unknown.

        Other programs hardly change it, but it is not always evidence (plugins/gate/cpu_time.py).
        """
        used = list(zip(self.here.cpu_seconds, self.there.cpu_seconds))
        values = [math.log(here / there) for here, there in used if here and there]
        both_orders = len(set(self.here_first)) == 2 or self.enough
        if len(values) < len(self.here_first) or not both_orders:
            return None
        return self._balanced(values, [True] * len(values))

    def _balanced(self, values: Sequence[float], kept: Sequence[bool]) -> Effect:
        """Return the mean of the two orders' trimmed means, per item."""
        items = math.log(self.items_here / self.items_there)
        chosen = [
            [
                value - items
                for value, compared, first in zip(values, kept, self.here_first)
                if compared and first == order
            ]
            for order in (True, False)
        ]
        orders = [Trimmed.of(of_order) for of_order in chosen if of_order]
        variance = math.fsum(one.squares / (one.count * max(1, one.count - 1)) for one in orders)
        degrees = max(1, sum(one.count for one in orders) - 2)
        change = statistics.fmean(one.mean for one in orders)
        return Effect(change, math.sqrt(variance) / len(orders), degrees)

    def looks(self, steps: Optional[int]) -> bool:
        """Return whether to check for a reason to stop: only after every 5% more rounds.

        A check takes longer the more rounds there are.
        """
        count = len(self.here_first)
        if steps is not None:
            return count >= steps
        return count >= LEAST_COMPARABLE and not (count // 2) % max(1, count // 40)

    def stop_reason(self, budget: float, precision: float, steps: Optional[int]) -> str:
        """Return why the rounds end ('steps', 'precision', 'budget', 'disturbed'), or ''.

        ``budget`` is in seconds of comparable rounds on both sides. The rounds end at half of the
        given ``precision``: pairs of processes differ by more than that, so more pairs narrow the
        interval and more rounds of this pair do not.
        """
        if steps is not None:
            return "steps" if len(self.here_first) >= steps else ""
        kept = self.comparable()
        spent = self._spent()
        if self.enough:
            if sum(kept) >= LEAST_FOR_PRECISION:
                low, high = self.effect().interval()
                if (high - low) / 2 <= precision / 2:
                    return "precision"
            if math.fsum(s for s, compared in zip(spent, kept) if compared) >= budget:
                return "budget"
        # A pair without any comparable rounds ends sooner.
        most = (1 + STRETCH) * budget if any(kept) else budget
        return "disturbed" if math.fsum(spent) >= most else ""

    @property
    def seconds(self) -> float:
        """The seconds of all rounds on both sides."""
        return math.fsum(self._spent())

    def _spent(self) -> List[float]:
        """Return the seconds of each pair of rounds."""
        return [a + b for a, b in zip(self.here.seconds, self.there.seconds)]

    def taken(self, compared: bool = False) -> float:
        """Return the median share that other programs took of a round, on both sides.

        ``compared``: only of the rounds that are compared.
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
    """Return whether other programs took about the same share of two adjacent rounds.

    True if the system does not count it.
    """
    if here is None or there is None:
        return True
    return abs(here - there) <= MOST_UNEQUAL
