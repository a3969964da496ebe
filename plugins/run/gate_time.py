"""Implements `--gate-time`, which limits the time of a gate's fresh processes."""

from __future__ import annotations

import contextlib
import math
import time
from typing import Iterator, Optional


class GateTime:
    """The rest of ``--gate-time``, divided equally among the remaining cases."""

    def __init__(self, seconds: Optional[float], cases: int) -> None:
        self._left = math.inf if seconds is None else seconds
        #: The number of cases that have not ended, including the current one.
        self.cases = cases
        self._share = math.inf
        #: The seconds of the latest measurement, and by how much a fresh process exceeded its
        #: estimate.
        self.latest = self.beyond = 0.0

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        return self._left <= 0

    def begin(self) -> None:
        """Give the current case its share, which includes what earlier cases left over."""
        self._share = self._left / max(1, self.cases)

    def end(self) -> None:
        """Count down when a case ends, measured or not."""
        self.cases -= 1

    def allows(self, seconds: float) -> bool:
        """Return whether the case has this much time left."""
        return seconds <= self._share

    def at_most(self, seconds: float) -> float:
        """Return how long a case can take that would need this much time."""
        return min(seconds, self._share)

    @contextlib.contextmanager
    def spending(self) -> Iterator[None]:
        """Subtract the time of a measurement, even if it fails."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.latest = time.monotonic() - started
            self._share -= self.latest
            self._left -= self.latest
