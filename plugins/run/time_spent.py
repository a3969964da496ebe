"""Where the time of a run goes: at each moment one part is entered, so the parts add up to it.

A case's record has the seconds of its parts (``spent``), the journal's last line those of the run,
and the terminal says them in one line. ``other`` is what no part names.
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

#: Part -> the words for it at the end of a run.
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
#: What a fixture's making is counted to; a runtime's is the import of its framework.
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
#: Parts of less than this share of a run are not in the line at its end.
LEAST_SHARE = 0.01
#: A process that says it started longer ago has a clock that cannot be relied on.
LONGEST_START = 3600.0


class TimeSpent:
    """Seconds by part, of a run and of the case that runs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, before: float = 0.0) -> None:
        """``before``: the seconds for which this process has run already."""
        self.seconds: Dict[str, float] = {}
        self._clock = clock
        self._part = "start"
        self._since = clock() - before
        self._at_begin: Dict[str, float] = {}
        #: The seconds of workers that have ended; what their controller did was to wait for them.
        self.workers: List[Dict[str, float]] = []

    def enter(self, part: str) -> str:
        """Count the time from here on to a part of WORDS; return the one before it."""
        now = self._clock()
        before = self._part
        self.seconds[before] = self.seconds.get(before, 0.0) + now - self._since
        self._part, self._since = part, now
        return before

    @contextlib.contextmanager
    def during(self, part: str) -> Iterator[None]:
        """Count what happens inside to a part, and what follows to the one before it."""
        before = self.enter(part)
        try:
            yield
        finally:
            self.enter(before)

    def of_fixture(self, name: str) -> ContextManager[None]:
        """Count the making of a fixture that takes long."""
        part = FIXTURES.get(name)
        return self.during(part) if part else contextlib.nullcontext()

    @contextlib.contextmanager
    def of_test(self, is_case: bool) -> Iterator[None]:
        """Count what happens to a test, and what happens until the next one."""
        if is_case:
            self.begin_case()
        yield
        self.enter("between")

    def begin_case(self) -> None:
        """Note that a case begins."""
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
        """Return the seconds of each part so far; with workers theirs, added up."""
        self.enter(self._part)
        whole: Dict[str, float] = {}
        for process in self.workers or [self.seconds]:
            for part, seconds in process.items():
                whole[part] = whole.get(part, 0.0) + seconds
        return {part: round(seconds, 4) for part, seconds in whole.items()}

    def split(self, parts: Mapping[str, float]) -> None:
        """Give the time of the part that is entered to those that another process has told of.

        What it has not told of is the start of that process, and where it tells of more than there
        was nothing changes.
        """
        now = self._clock()
        rest = now - self._since - math.fsum(parts.values())
        if rest < 0:
            return
        for part, seconds in {**parts, "start": parts.get("start", 0.0) + rest}.items():
            self.seconds[part] = self.seconds.get(part, 0.0) + seconds
        self._since = now


def seconds_of_start() -> float:
    """Return for how long this process has run, in seconds; 0 where the system does not tell."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        ticks, per_second = int(fields[19]), os.sysconf("SC_CLK_TCK")
        seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / per_second
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0
    return seconds if 0 <= seconds <= LONGEST_START else 0.0


def time_in_words(spent: TimeSpent, width: int) -> List[str]:
    """Return in one sentence, wrapped to ``width`` columns, where the time of a run went.

    The largest part comes first; parts of less than ``LEAST_SHARE`` are left out.
    """
    seconds = spent.of_run()
    whole = math.fsum(seconds.values())
    if whole <= 0:
        return []
    shares = sorted(((value / whole, part) for part, value in seconds.items()), reverse=True)
    said = [f"{percent(share, 0)} {WORDS[part]}" for share, part in shares if share >= LEAST_SHARE]
    whose = f" of {counted(len(spent.workers), 'worker')}" if spent.workers else ""
    text = f"time{whose}: {whole:.0f} s: {', '.join(said)}"
    return textwrap.wrap(text, width, subsequent_indent=" " * 6, break_on_hyphens=False)
