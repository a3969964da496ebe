"""Busy processes that run during a measurement, all the time or intermittently."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import Dict, Iterator, List, NamedTuple

# Each phase lasts half a second to five seconds, as compilers and tests do.
PROGRAM = """\
import random, sys, time
on_off = sys.argv[1] == "on-off"
while True:
    end = time.monotonic() + random.uniform(0.5, 5)
    while time.monotonic() < end:
        sum(range(10000))
    if on_off:
        time.sleep(random.uniform(0.5, 5))
"""


class Load(NamedTuple):
    """The number of neighbours, and whether they pause."""

    processes: int
    on_off: bool


LOADS: Dict[str, Load] = {
    "quiet": Load(0, False),
    "one": Load(1, False),
    "two": Load(2, False),
    "one-on-off": Load(1, True),
    "two-on-off": Load(2, True),
}


# The shell ends at once, so the neighbour is no child of the measuring process, which would count
# its CPU time as its own.
DETACHED = '"$0" -c "$1" "$2" >/dev/null 2>&1 & echo $!'


@contextlib.contextmanager
def neighbours(load: Load) -> Iterator[List[int]]:
    """Run the neighbours of a load meanwhile; yield their process numbers."""
    running: List[int] = []
    kind = "on-off" if load.on_off else "steady"
    try:
        for _ in range(load.processes):
            words = ["sh", "-c", DETACHED, sys.executable, PROGRAM, kind]
            running.append(int(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout))
        yield running
    finally:
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
