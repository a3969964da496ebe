"""Handles SIGTERM like Ctrl-C, so that an interrupted run ends cleanly.

The run prints its table, releases the device, stops fresh processes and servers, and completes its
files. Its exit code is 143, as a shell reports SIGTERM; Ctrl-C keeps pytest's 2. A second SIGTERM
ends the process at once.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import Any, Optional

import pytest

from ipubench.fixtures.command_line import options_of
from ipubench.plugins.command_line.arguments import is_worker, measures
from ipubench.plugins.run.results import Recording

#: Signals within this time count as one: coreutils' timeout signals the process, then its group.
SECONDS_OF_ONE = 1.0


class Terminated(KeyboardInterrupt):
    """Raised on SIGTERM. Not an Exception, so that ``except Exception`` in a case lets it pass."""


class Sigterm:
    """The handler of SIGTERM while a session measures."""

    def __init__(self, session: pytest.Session) -> None:
        self.session = session
        self.finishing = False
        #: When the first SIGTERM arrived.
        self.arrived: Optional[float] = None
        self._before: Any = signal.signal(signal.SIGTERM, self)

    def __call__(self, number: int, frame: Optional[FrameType]) -> None:
        """End the session, which then writes its files and releases the device."""
        now = time.monotonic()
        if self.arrived is not None:
            if now - self.arrived > SECONDS_OF_ONE:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGTERM)
            return
        self.arrived = now
        if not self.finishing:
            # The user's code may catch the exception.
            self.session.shouldstop = "SIGTERM"
            raise Terminated("SIGTERM")

    def raise_again(self) -> None:
        """Raise the exception again if the case caught it: the case neither passed nor failed."""
        if self.arrived is not None:
            raise Terminated("SIGTERM")

    def leave(self) -> bool:
        """Restore the handler before this one; return whether SIGTERM has arrived."""
        signal.signal(signal.SIGTERM, self._before)
        return self.arrived is not None


def handle_sigterm(session: pytest.Session) -> Optional[Sigterm]:
    """Install the handler in a session that measures; an instance leaves it to its launcher."""
    config = session.config
    alone = measures(config) and not is_worker(config)  # a worker ends with its controller
    main = threading.current_thread() is threading.main_thread()
    return Sigterm(session) if alone and main else None


def note_early_end(run: Recording, ended: int) -> None:
    """Add notes on what an interrupted run left undone."""
    if run.journal is None or ended != pytest.ExitCode.INTERRUPTED:
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
