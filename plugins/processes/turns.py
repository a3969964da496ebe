"""Turns of several processes on one host: builders share it, whoever times has it alone.

Two file locks in one folder. ``room`` is held shared by builders and exclusively by a timer.
``turnstile`` is passed on the way into the room; a timer that waits stands in it, so builders that
come later wait behind the timer and cannot keep it waiting for ever. The kernel frees both locks
of a process that ends, however it ends.

A builder that compiles alone, and holds nothing that a timer may want, leaves the room and locks a
file of its own, ``stoppable-PID``. A timer then does not wait for it, but stops it for that time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from pathlib import Path
from typing import Callable, Iterator, List, Optional, Set, TextIO, Tuple

import pytest

from ipubench.fixtures.machine.supervisor import children, status

STOPPABLE = "stoppable-"


class Turns:
    """The turns of this process; without a folder it is alone, and everything is its turn."""

    def __init__(self, folder: Optional[Path] = None) -> None:
        self._folder = folder
        self._turnstile: Optional[TextIO] = None
        self._room: Optional[TextIO] = None
        if folder is not None:
            self._turnstile = (folder / "turnstile").open("a", encoding="ascii")
            self._room = (folder / "room").open("a", encoding="ascii")
        self._building = False
        self._timing = False

    @contextlib.contextmanager
    def building(self) -> Iterator[None]:
        """Work that may run beside other processes' building, and beside no timing."""
        self._enter(fcntl.LOCK_SH)
        self._building = True
        try:
            yield
        finally:
            self._building = False
            self._leave()

    @contextlib.contextmanager
    def stoppable(self, allowed: bool = True) -> Iterator[Callable[[], float]]:
        """Building that a timer may stop, in this process and what it has started.

        The work waits for no other process and holds nothing that a timer may want. Yields what
        returns how many seconds it has stood still.
        """
        if self._folder is None or not (allowed and self._building and possible()):
            yield lambda: 0.0
            return
        path = self._folder / f"{STOPPABLE}{os.getpid()}"
        with path.open("w", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._leave()
            try:
                yield lambda: sum(map(float, path.read_text(encoding="ascii").split()))
            finally:
                # Before entering: a timer that would not stop us waits for this lock.
                fcntl.flock(file, fcntl.LOCK_UN)
                self._enter(fcntl.LOCK_SH)

    @contextlib.contextmanager
    def timing(self, stop: bool = False) -> Iterator[None]:
        """Work that runs beside nothing; within :meth:`building`, which goes on afterwards.

        Other processes' turns may come first. With ``stop`` it stops what is stoppable and does not
        wait for it; then it must not want what a stopped process may hold. Within itself it changes
        nothing.
        """
        if self._timing:
            yield
            return
        # Two builders that both kept the room while they waited for it would wait for ever.
        self._leave()
        self._enter(fcntl.LOCK_EX)
        self._timing = True
        try:
            with self._others(stop):
                yield
        finally:
            self._timing = False
            self._leave()
            if self._building:
                self._enter(fcntl.LOCK_SH)

    @contextlib.contextmanager
    def _others(self, stop: bool) -> Iterator[None]:
        """Stop those who may be stopped, or wait for them."""
        stopped: List[Tuple[int, TextIO, float]] = []
        with contextlib.ExitStack() as files:
            try:
                for path in self._stoppable():
                    file: TextIO = files.enter_context(path.open("a", encoding="ascii"))
                    if not stop:
                        fcntl.flock(file, fcntl.LOCK_EX)
                        fcntl.flock(file, fcntl.LOCK_UN)
                    elif _is_locked(file):
                        # Noted before: an interruption of the stopping is made good as well.
                        stopped.append((_pid_of(path), file, time.monotonic()))
                        pause(_pid_of(path))
                yield
            finally:
                for pid, file, since in stopped:
                    file.write(f"{time.monotonic() - since}\n")
                    file.flush()
                    go_on(pid)

    def _stoppable(self) -> List[Path]:
        """Return the files of the other processes."""
        if self._folder is None:
            return []
        paths = self._folder.glob(f"{STOPPABLE}*")
        return sorted(path for path in paths if _pid_of(path) != os.getpid())

    def _enter(self, how: int) -> None:
        if self._turnstile is None or self._room is None:
            return
        fcntl.flock(self._turnstile, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._room, how)
        finally:
            fcntl.flock(self._turnstile, fcntl.LOCK_UN)

    def _leave(self) -> None:
        if self._room is not None:
            fcntl.flock(self._room, fcntl.LOCK_UN)


def let_all_go_on(folder: Path) -> None:
    """Let those go on whom a timer that has died may have stopped."""
    for path in folder.glob(f"{STOPPABLE}*"):
        with path.open("a", encoding="ascii") as file:
            if _is_locked(file):
                go_on(_pid_of(path))


def _pid_of(path: Path) -> int:
    return int(path.name[len(STOPPABLE) :])


def _is_locked(file: TextIO) -> bool:
    """Whether another process, which is then alive, has the lock of a file."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


turns_key = pytest.StashKey[Turns]()


def turns_of(config: pytest.Config) -> Turns:
    """Return the turns of this session's process."""
    return config.stash.get(turns_key, None) or Turns()


# A process that has to finish a call of the kernel stops after it.
LONGEST_WAIT = 1.0


def possible() -> bool:
    """Whether this system tells which processes a process has started."""
    return os.path.exists("/proc/self/stat")


def pause(pid: int) -> None:
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
