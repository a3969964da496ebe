"""Real extra work for a known share of a round: the slow-downs that the gate has to find."""

from __future__ import annotations

import statistics
from typing import Callable

import numpy as np

from ipubench.fixtures.runtimes.step import Step
from ipubench.plugins.measure.rounds import timed

#: Extra work as a share of a round; 0 is the unchanged code.
LEVELS = (0.0, 0.01, 0.02, 0.05, 0.10)
#: The extra work is square roots of this many float32 values, repeated: a few microseconds each.
ELEMENTS = 4096
CALLS_FOR_UNIT = 2000


class ExtraWork:
    """Arithmetic on a small array that takes a share of a round.

    NumPy runs it on the calling thread. A matrix product would wake NumPy's thread pool, which
    keeps spinning and slows the next round by far more than the product's time.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._values = np.linspace(0.5, 1.5, ELEMENTS, dtype=np.float32)
        self._run(CALLS_FOR_UNIT)
        times = [timed(lambda: self._run(CALLS_FOR_UNIT), clock) for _ in range(9)]
        self.unit_seconds = statistics.median(times) / CALLS_FOR_UNIT

    def _run(self, count: int) -> None:
        for _ in range(count):
            np.sqrt(self._values, out=self._values)

    def calls(self, round_seconds: float, share: float) -> int:
        """Return how many calls take ``share`` of a round."""
        return round(share * round_seconds / self.unit_seconds)

    def after(self, step: Step, calls: int) -> Callable[[], None]:
        """Return ``step`` followed by that many calls."""

        def slowed() -> None:
            step()
            self._run(calls)

        return slowed
