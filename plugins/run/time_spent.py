"""Divides the time of a run into parts that add up to the total.

A case's record stores the seconds of its parts (``spent``), the journal's last line those of the
run, and the terminal shows these in one sentence. ``other`` is the rest.
"""

from __future__ import annotations

import contextlib
import math
import os
import textwrap
import time
from pathlib import Path
from typing import Callable, ContextManager, Dict, Iterator, List, Mapping

from ipubench.fixtures.case.errors import counted
from ipubench.plugins.record.text import percent

#: Part -> its text at the end of a run.
WORDS = {
    "start": "starting and collecting",
    "device": "getting the device",
    "import": "importing",
    "count": "counting instructions",
    "quiet": "waiting for quiet",
    "data": "finding data",
    "build": "building",
    "compile": "compiling",
    "peak": "measuring peaks",
    "warm_up": "warm-up",
    "prepare": "finding a rate",
    "rounds": "rounds",
    "latency": "latency",
    "finish": "finishing",
    "input": "loader and model alone",
    "record": "recording",
    "profile": "profiling",
    "command": "commands",
    "compare": "other processes and comparing",
    "close": "closing",
    "between": "between cases",
    "other": "other",
}
#: The part that a fixture's setup counts as; a runtime's is the import of its framework.
FIXTURES = {
    "ipubench_device": "device",
    "ipubench_conditions": "device",
    "pytorch": "import",
    "tensorflow": "import",
    "popart": "import",
    "triton": "import",
    "tensorflow_serving": "import",
    "data": "data",
}
#: Smaller shares of a run are not shown at its end.
LEAST_SHARE = 0.01
#: If a process seems to have started longer ago, its clock is unreliable.
LONGEST_START = 3600.0


class TimeSpent:
    """The seconds of each part, for the run and for the current case."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, before: float = 0.0) -> None:
        """``before``: the seconds that this process has already run."""
        self.seconds: Dict[str, float] = {}
        self._clock = clock
        self._part = "start"
        self._since = clock() - before
        self._at_begin: Dict[str, float] = {}
        #: The seconds of finished workers; their controller only waits for them.
        self.workers: List[Dict[str, float]] = []

    def enter(self, part: str) -> str:
        """Count the time from now on as this part of WORDS; return the previous part."""
        now = self._clock()
        before = self._part
        self.seconds[before] = self.seconds.get(before, 0.0) + now - self._since
        self._part, self._since = part, now
        return before

    @contextlib.contextmanager
    def during(self, part: str) -> Iterator[None]:
        """Count the time inside as this part, then return to the previous one."""
        before = self.enter(part)
        try:
            yield
        finally:
            self.enter(before)

    def of_fixture(self, name: str) -> ContextManager[None]:
        """Count the setup of a fixture that takes long."""
        part = FIXTURES.get(name)
        return self.during(part) if part else contextlib.nullcontext()

    @contextlib.contextmanager
    def of_test(self, is_case: bool) -> Iterator[None]:
        """Count the time of a test, and then the time until the next one."""
        if is_case:
            self.begin_case()
        yield
        self.enter("between")

    def begin_case(self) -> None:
        """Start counting for a new case."""
        self.enter("other")
        self._at_begin = dict(self.seconds)

    def of_case(self) -> Dict[str, float]:
        """Return the seconds of each part since the case began."""
        self.enter(self._part)
        found = {
            part: seconds - self._at_begin.get(part, 0.0) for part, seconds in self.seconds.items()
        }
        return {part: round(seconds, 4) for part, seconds in found.items() if seconds > 0}

    def of_run(self) -> Dict[str, float]:
        """Return the seconds of each part so far; with workers, their sum."""
        self.enter(self._part)
        total: Dict[str, float] = {}
        for process in self.workers or [self.seconds]:
            for part, seconds in process.items():
                total[part] = total.get(part, 0.0) + seconds
        return {part: round(seconds, 4) for part, seconds in total.items()}

    def split(self, parts: Mapping[str, float]) -> None:
        """Divide the current part's time by the ``parts`` that another process has reported.

        The rest counts as that process's start. Does nothing if the parts exceed the time.
        """
        now = self._clock()
        rest = now - self._since - math.fsum(parts.values())
        if rest < 0:
            return
        for part, seconds in {**parts, "start": parts.get("start", 0.0) + rest}.items():
            self.seconds[part] = self.seconds.get(part, 0.0) + seconds
        self._since = now


def seconds_of_start() -> float:
    """Return the seconds since this process started; 0 if unknown."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        ticks, per_second = int(fields[19]), os.sysconf("SC_CLK_TCK")
        seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / per_second
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0
    return seconds if 0 <= seconds <= LONGEST_START else 0.0


def time_summary(spent: TimeSpent, width: int) -> List[str]:
    """Return a sentence on the parts of the run's time, wrapped to ``width`` columns.

    The largest part comes first; parts below ``LEAST_SHARE`` are left out.
    """
    seconds = spent.of_run()
    total = math.fsum(seconds.values())
    if total <= 0:
        return []
    shares = sorted(((value / total, part) for part, value in seconds.items()), reverse=True)
    shown = [f"{percent(share, 0)} {WORDS[part]}" for share, part in shares if share >= LEAST_SHARE]
    workers = f" of {counted(len(spent.workers), 'worker')}" if spent.workers else ""
    text = f"time{workers}: {total:.0f} s: {', '.join(shown)}"
    return textwrap.wrap(text, width, subsequent_indent=" " * 6, break_on_hyphens=False)
