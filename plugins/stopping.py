"""Stop another process for a while, with all that it has started (Linux: /proc, SIGSTOP)."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Dict, List

PROC = Path("/proc")


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


def _family(pid: int) -> List[int]:
    """Return a process and its descendants, parents before their children."""
    children: Dict[int, List[int]] = {}
    for path in PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # one that has just ended
            # The name, in parentheses, may hold anything; the parent is the second word behind it.
            words = path.read_bytes().rpartition(b")")[2].split()
            children.setdefault(int(words[1]), []).append(int(path.parent.name))
    family = [pid]
    for one in family:
        family += children.get(one, [])
    return family
