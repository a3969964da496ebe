"""What counts instructions: the machine's performance unit, or valgrind's callgrind."""

from __future__ import annotations

import platform
import shutil
from abc import ABC, abstractmethod
from typing import Any, Callable, Dict

PERF, CALLGRIND = "perf", "callgrind"
WAYS = (PERF, CALLGRIND)
#: Machines whose client requests plugins/count/callgrind.py can make.
MACHINES = ("x86_64", "aarch64")
NOTHING_COUNTS = (
    "--count=instructions: this machine shows no performance unit, and there is no valgrind that "
    "could count instead: install it (apt-get install valgrind), or leave out --count and compare "
    "times"
)
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
        """Return the instructions of a count by function; empty if nobody knows them."""

    @abstractmethod
    def describe(self) -> Dict[str, Any]:
        """Return how instructions are counted, for the record."""

    def note(self) -> Dict[str, Any]:
        """Return what a reader has to know of the counts so far, beside how they are made."""
        return {}


def choose(preferred: str = "") -> str:
    """Return the best way to count here, the ``preferred`` one if it works; '' if none does."""
    from ipubench.plugins.count.perf import is_available

    works = {
        PERF: is_available(),
        CALLGRIND: platform.machine() in MACHINES and shutil.which("valgrind") is not None,
    }
    return next((way for way in (preferred, *WAYS) if works.get(way)), "")


def make(way: str, folder: str) -> Counter:
    """Return the counter of this process, which was started for it."""
    from ipubench.plugins.count.callgrind import Callgrind
    from ipubench.plugins.count.perf import PerformanceUnit

    return PerformanceUnit() if way == PERF else Callgrind(folder)
