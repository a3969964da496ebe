"""`--gate-time`: how long the processes that a gate asks for may take."""

from __future__ import annotations

import contextlib
import math
import time
from typing import Iterator, Optional


class GateTime:
    """What is left of ``--gate-time``, in equal shares for the cases that are still to come."""

    def __init__(self, seconds: Optional[float], cases: int) -> None:
        self._left = math.inf if seconds is None else seconds
        #: The cases that have not ended, the one that runs among them.
        self.cases = cases
        self._share = math.inf
        #: The seconds of the latest measurement, and of a fresh process beyond what was expected.
        self.latest = self.beyond = 0.0

    def begin(self) -> None:
        """Give the case that runs its share; what earlier ones left over is in it."""
        self._share = self._left / max(1, self.cases)

    def end(self) -> None:
        """Note that a case has ended, measured or not."""
        self.cases -= 1

    def allows(self, seconds: float) -> bool:
        """Tell whether the case has so much left."""
        return seconds <= self._share

    @contextlib.contextmanager
    def spending(self) -> Iterator[None]:
        """Take from what is left the time that a measurement takes, also where it fails."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.latest = time.monotonic() - started
            self._share -= self.latest
            self._left -= self.latest
