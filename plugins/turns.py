"""Turns of several processes on one host: builders share it, whoever times has it alone.

Two file locks in one folder. ``room`` is held shared by builders and exclusively by a timer.
``turnstile`` is passed on the way into the room; a timer that waits stands in it, so builders that
come later wait behind the timer and cannot keep it waiting for ever. The kernel frees both locks
of a process that ends, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
from pathlib import Path
from typing import Iterator, Optional, TextIO

import pytest


class Turns:
    """The turns of this process; without a folder it is alone, and everything is its turn."""

    def __init__(self, folder: Optional[Path] = None) -> None:
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
    def timing(self) -> Iterator[None]:
        """Work that runs beside nothing; within :meth:`building`, which goes on afterwards.

        Other processes' turns may come first. Within itself it changes nothing.
        """
        if self._timing:
            yield
            return
        # Two builders that both kept the room while they waited for it would wait for ever.
        self._leave()
        self._enter(fcntl.LOCK_EX)
        self._timing = True
        try:
            yield
        finally:
            self._timing = False
            self._leave()
            if self._building:
                self._enter(fcntl.LOCK_SH)

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


turns_key = pytest.StashKey[Turns]()


def turns_of(config: pytest.Config) -> Turns:
    """Return the turns of this session's process."""
    return config.stash.get(turns_key, None) or Turns()
