"""A run that is ended early ends well: SIGTERM is answered as Ctrl-C is.

The table is printed, the device released, fresh processes and servers ended, and every file is
whole. The exit code is then 143, as a shell reports SIGTERM; Ctrl-C keeps pytest's 2. A second
SIGTERM ends the process at once.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import Any, Generator, Optional

import pytest

from ipubench.plugins.command_line.words import is_worker, measures
from ipubench.plugins.run.results import run_key, selected

EXIT_TERMINATED = 128 + signal.SIGTERM
#: coreutils' timeout sends the signal to the process and then to its group: that is one request.
SECONDS_OF_ONE = 1.0


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived. Like Ctrl-C it is no Exception: a case that handles errors lets it pass."""


class Sigterm:
    """The handler of SIGTERM while a session measures."""

    _clock = staticmethod(time.monotonic)

    def __init__(self, session: pytest.Session) -> None:
        self.session = session
        self.finishing = False
        #: When the first one arrived.
        self.arrived: Optional[float] = None
        self._before: Any = signal.signal(signal.SIGTERM, self)

    def __call__(self, number: int, frame: Optional[FrameType]) -> None:
        """End the session, which then writes its files and releases the device."""
        now = self._clock()
        if self.arrived is not None:
            if now - self.arrived > SECONDS_OF_ONE:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGTERM)
            return
        self.arrived = now
        if not self.finishing:
            # Code of the user may catch the exception.
            self.session.shouldstop = "SIGTERM"
            raise Terminated("SIGTERM")

    def leave(self) -> None:
        """Give the signal back to whoever had it before, and set the exit code."""
        signal.signal(signal.SIGTERM, self._before)
        # Not earlier: what writes files at the end asks the exit code whether the run is whole.
        if self.arrived is not None:
            self.session.exitstatus = EXIT_TERMINATED


sigterm_key = pytest.StashKey[Sigterm]()
#: The errors of the collection, known once it has ended.
_errors_key = pytest.StashKey[int]()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Answer SIGTERM in a session that measures; the end of an instance is its launcher's."""
    config = session.config
    alone = measures(config) and not is_worker(config)  # a worker ends with its controller
    if alone and threading.current_thread() is threading.main_thread():
        config.stash[sigterm_key] = Sigterm(session)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Note how many errors the collection had; pytest counts those of tests with them."""
    session.config.stash[_errors_key] = session.testsfailed


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    """End a test that has caught SIGTERM as one that has not: it has neither passed nor failed."""
    outcome = yield
    handler = item.config.stash.get(sigterm_key, None)
    if handler is not None and handler.arrived is not None:
        outcome.force_exception(Terminated("SIGTERM"))


pytest_runtest_setup = pytest_runtest_teardown = pytest_runtest_call


@pytest.hookimpl(tryfirst=True, specname="pytest_sessionfinish")
def pytest_sessionfinish_begins(session: pytest.Session) -> None:
    """From here on SIGTERM changes the exit code only."""
    handler = session.config.stash.get(sigterm_key, None)
    if handler is not None:
        handler.finishing = True


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Say what an early end left undone."""
    config = session.config
    run = config.stash.get(run_key, None)
    if run is not None and session.exitstatus == pytest.ExitCode.INTERRUPTED:
        # Such a run ends before its first test, and would do so once more.
        errors = config.stash.get(_errors_key, session.testsfailed)
        uncollected = errors > 0 and not config.option.continue_on_collection_errors
        if config.option.baseline_save is not None:
            why = "a file could not be collected" if uncollected else "the run was interrupted"
            run.closing.append(f"no baseline was written: {why}")
        if uncollected:
            return
        cases = selected(config)
        done = [nodeid for nodeid in cases if run.results.outcomes.get(nodeid) == "passed"]
        run.closing.append(
            f"interrupted with {len(done)} of {len(cases)} cases done; the same command with "
            "--resume goes on"
        )


def pytest_unconfigure(config: pytest.Config) -> None:
    """The signal is somebody else's again."""
    if sigterm_key in config.stash:
        config.stash[sigterm_key].leave()
