"""How long the rest of a run takes, guessed from the cases that have ended."""

from __future__ import annotations

import math
from typing import Dict, List, Optional


class Remaining:
    """Seconds that are left, by the mean of each bench function's finished cases.

    A function without a finished case counts as the mean of all. Times are seconds of any clock
    that goes forward; cases may overlap.
    """

    def __init__(self, functions: Dict[str, str]) -> None:
        """``functions``: the bench function of each case that is to run."""
        self._functions = dict(functions)
        self._running: Dict[str, float] = {}
        self._finished: Dict[str, List[float]] = {}
        self._first: Optional[float] = None

    def begin(self, case: str, now: float) -> None:
        """Note that a case starts."""
        if self._first is None:
            self._first = now
        self._running[case] = now

    def finish(self, case: str, now: float) -> float:
        """Note that a case has ended, once; return its seconds."""
        seconds = now - self._running.pop(case, now)
        function = self._functions.pop(case, None)
        if function is not None:
            self._finished.setdefault(function, []).append(seconds)
        return seconds

    def left(self, now: float) -> Optional[float]:
        """Return the seconds to go; None where there is no case to go by, or none is left."""
        known = [seconds for times in self._finished.values() for seconds in times]
        if not known or not self._functions or self._first is None:
            return None
        spent = {case: now - start for case, start in self._running.items()}
        work = 0.0
        for case, function in self._functions.items():
            times = self._finished.get(function, known)
            work += max(0.0, math.fsum(times) / len(times) - spent.get(case, 0.0))
        # How many cases ran at a time so far; with workers more than one.
        wall = now - self._first
        busy = math.fsum(known) + math.fsum(spent.values())
        return work * wall / busy if busy > 0 else None


def in_words(seconds: float) -> str:
    """Return a rough duration: the digits that an estimate deserves."""
    if seconds < 10:
        return "a few seconds"
    if seconds < 95:
        return f"about {10 * round(seconds / 10):.0f} s"
    minutes = seconds / 60
    if minutes < 90:
        return f"about {minutes:.0f} min"
    return f"about {minutes / 60:.1f} h"
