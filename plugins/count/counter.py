"""What counts instructions: the machine's performance unit, or valgrind's callgrind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Callable, Dict, Optional

PERF, CALLGRIND = "perf", "callgrind"
#: Instructions by function.
Functions = Dict[str, float]


class Counter(ABC):
    """Counts the instructions of this process between two moments."""

    @abstractmethod
    def start(self) -> None:
        """Get ready: from now on each call of ``count`` is exact."""

    @abstractmethod
    def count(self, run: Callable[[], Any]) -> int:
        """Count the instructions of one run, with a constant number for counting itself.

        Returns the number of the count, for :meth:`total` and :meth:`functions`.
        """

    @abstractmethod
    def stop(self) -> None:
        """Let the process run at its usual speed."""

    @abstractmethod
    def total(self, number: int) -> float:
        """Return the instructions of a count."""

    @abstractmethod
    def functions(self, number: int) -> Functions:
        """Return the instructions of a count by function; empty if the counter has none."""

    @abstractmethod
    def describe(self) -> Dict[str, Any]:
        """Return how instructions are counted, for the record."""

    def multiplexed(self) -> Optional[float]:
        """Return the share of the time in which others had the counter; None if unshared."""
        return None
