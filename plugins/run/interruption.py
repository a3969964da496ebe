"""Handles SIGTERM like Ctrl-C, so that an interrupted run ends cleanly.

The run prints its table, releases the device, stops fresh processes and servers, and completes its
files. Its exit code is 143, as a shell reports SIGTERM; Ctrl-C keeps pytest's 2. While the session
ends, the first further signal is ignored, and the next one ends the process at once.
"""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any, Dict, Optional

import pytest

from ipubench.fixtures.command_line import options_of
from ipubench.plugins.command_line.role import Role
from ipubench.plugins.run import loading
from ipubench.plugins.run.recording import Recording

#: Signals within this time count as one: coreutils' timeout signals the process, then its group.
SECONDS_OF_ONE = 1.0


class Interruption:
    """The handler of SIGTERM while a session measures, and of Ctrl-C while it ends."""

    def __init__(self, session: pytest.Session) -> None:
        self.session = session
        self.finishing = False
        #: When the first signal arrived, and its exit code.
        self.arrived: Optional[float] = None
        self.code = 0
        self._before: Dict[signal.Signals, Any] = {}
        self._handle(signal.SIGTERM)

    def __call__(self, number: int, frame: Optional[FrameType]) -> None:
        """End the session, which then writes its files and releases the device."""
        now = time.monotonic()
        if self.arrived is not None:
            if now - self.arrived > SECONDS_OF_ONE:
                loading.end_at_once(number, frame)
            return
        self.arrived = now
        self.code = loading.CODES[signal.Signals(number)]
        if not self.finishing:
            # The user's code may catch the exception.
            self.session.shouldstop = "SIGTERM"
            raise loading.Interrupted(signal.SIGTERM)

    def raise_again(self) -> None:
        """Raise the exception again if the case caught it: the case neither passed nor failed."""
        if self.arrived is not None:
            raise loading.Interrupted(signal.SIGTERM)

    def finish(self) -> None:
        """Complete the session, whatever arrives.

        Until now Ctrl-C has its usual handler: tests and asyncio may expect that.
        """
        self.finishing = True
        if signal.getsignal(signal.SIGINT) is loading.USUAL[signal.SIGINT]:
            self._handle(signal.SIGINT)

    # Before pytest formats a traceback, which takes long enough for a second Ctrl-C.
    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """Note that the session ends."""
        self.finish()

    def _handle(self, number: signal.Signals) -> None:
        self._before[number] = signal.signal(number, self)

    def leave(self) -> int:
        """Restore the handlers; return the exit code of a signal that has arrived, or 0."""
        for number, before in self._before.items():
            if before is loading.USUAL[number]:
                loading.end_quietly(number)
            else:
                signal.signal(number, before)
        return self.code


def handle_signals(session: pytest.Session, role: Role) -> Optional[Interruption]:
    """Install the handler in a run; an instance ends with its launcher, a worker with its run."""
    loading.end()
    main = threading.current_thread() is threading.main_thread()
    return Interruption(session) if role.keeps_results and main else None


def note_early_end(run: Recording, ended: int) -> None:
    """Add notes on what an interrupted run left undone."""
    if ended != pytest.ExitCode.INTERRUPTED:
        return
    if options_of(run.config).baseline_save is not None:
        run.closing.append("no baseline was written: the run was interrupted")
    if run.begun or run.results.outcomes or run.results.running:
        run.interrupted = True
        done = [nodeid for nodeid in run.order if run.results.outcomes.get(nodeid) == "passed"]
        run.closing.append(
            f"interrupted with {len(done)} of {len(run.order)} cases done; to continue, repeat the "
            "command with --resume"
        )
