"""Which counter a machine has."""

from __future__ import annotations

import platform
import shutil

from ipubench.plugins.count.callgrind import CODE, Callgrind
from ipubench.plugins.count.counter import CALLGRIND, PERF, Counter
from ipubench.plugins.count.perf import PerformanceUnit, is_available

WAYS = (PERF, CALLGRIND)
NOTHING_COUNTS = (
    "--count=instructions: this machine shows no performance unit, and there is no valgrind that "
    "could count instead: install it (apt-get install valgrind), or leave out --count and compare "
    "times"
)


def choose(preferred: str = "") -> str:
    """Return the best way to count here, the ``preferred`` one if it works; '' if none does."""
    works = {
        PERF: is_available(),
        CALLGRIND: platform.machine() in CODE and shutil.which("valgrind") is not None,
    }
    return next((way for way in (preferred, *WAYS) if works.get(way)), "")


def make(way: str, folder: str) -> Counter:
    """Return the counter of this process, which was started for it."""
    return PerformanceUnit() if way == PERF else Callgrind(folder)
