"""Stop another process for a while, with all that it has started (Linux: /proc, SIGSTOP)."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Dict, List

PROC = Path("/proc")
# A process that has to finish a call of the kernel stops after it.
LONGEST_WAIT = 1.0


def possible() -> bool:
    """Whether this system tells which processes a process has started."""
    return (PROC / "self" / "stat").exists()


def stop(pid: int) -> List[int]:
    """Stop a process and its descendants; return those that were stopped, for :func:`go_on`.

    Parents first, and again until nobody new is found: one that runs may start another.
    """
    stopped: List[int] = []
    while True:
        found = [one for one in _family(pid) if one not in stopped]
        if not found:
            return stopped
        for one in found:
            _send(one, signal.SIGSTOP)
        stopped += found
        _wait_until_still(found)


def go_on(pids: List[int]) -> None:
    """Let stopped processes go on, children first."""
    for pid in reversed(pids):
        _send(pid, signal.SIGCONT)


def go_on_all(pid: int) -> None:
    """Let a process and its descendants go on, whoever stopped them."""
    go_on(_family(pid))


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _wait_until_still(pids: List[int]) -> None:
    deadline = time.monotonic() + LONGEST_WAIT
    for pid in pids:
        while time.monotonic() < deadline and _status(PROC / str(pid) / "stat")[0] in b"RSD":
            os.sched_yield()


def _status(path: Path) -> List[bytes]:
    """Return the words behind a process's name: its state, its parent, and so on.

    One that has ended is a zombie.
    """
    try:
        # The name, in parentheses, may hold anything.
        return path.read_bytes().rpartition(b")")[2].split()
    except OSError:
        return [b"Z", b"0"]


def _family(pid: int) -> List[int]:
    """Return a process and its descendants, parents before their children."""
    children: Dict[int, List[int]] = {}
    for path in PROC.glob("[0-9]*/stat"):
        children.setdefault(int(_status(path)[1]), []).append(int(path.parent.name))
    family = [pid]
    for one in family:
        family += children.get(one, [])
    return family
