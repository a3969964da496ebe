"""Stop another process for a while, with all that it has started (Linux: /proc, SIGSTOP)."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import List, Set

from fixtures.servers.supervisor import children, status

# A process that has to finish a call of the kernel stops after it.
LONGEST_WAIT = 1.0


def possible() -> bool:
    """Whether this system tells which processes a process has started."""
    return os.path.exists("/proc/self/stat")


def stop(pid: int) -> None:
    """Stop a process and its descendants, and wait until they stand still.

    Parents first, and again until nobody new is found: one that runs may start another.
    """
    stopped: Set[int] = set()
    while True:
        found = [one for one in _family(pid) if one not in stopped]
        if not found:
            return
        for one in found:
            _send(one, signal.SIGSTOP)
        stopped.update(found)
        deadline = time.monotonic() + LONGEST_WAIT
        for one in found:
            while status(one)[0] in "RSD" and time.monotonic() < deadline:
                os.sched_yield()


def go_on(pid: int) -> None:
    """Let a process and its descendants go on, children first."""
    for one in reversed(_family(pid)):
        _send(one, signal.SIGCONT)


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _family(pid: int) -> List[int]:
    """Return a process and its descendants, parents before their children."""
    family = [pid]
    for one in family:
        family += children(one)
    return family
