"""Ends Python in order if Ctrl-C or SIGTERM arrives before or after the session that handles them.

Without this, Ctrl-C prints a traceback, and SIGTERM skips what removes temporary files.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any, Dict, Optional

from pytest import ExitCode

#: Signal -> exit code, as README promises, and Python's usual handler.
CODES = {signal.SIGINT: int(ExitCode.INTERRUPTED), signal.SIGTERM: 128 + signal.SIGTERM}
USUAL: Dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


class Interrupted(SystemExit, KeyboardInterrupt):
    """Exits Python without a traceback; for pytest and others it is Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.code = CODES[signal.Signals(number)]


class Loading(Interrupted):
    """Raised before the session."""


def _while_loading(number: int, frame: Optional[FrameType]) -> None:
    _install(end_at_once)
    # While it loads, pytest captures output and shows it when an exception ends the loading.
    print("\ninterrupted while pytest was loading: nothing was measured", file=sys.stderr)
    raise Loading(number)


def _after(number: int, frame: Optional[FrameType]) -> None:
    _install(end_at_once)
    raise Interrupted(number)


def end_at_once(number: int, frame: Optional[FrameType]) -> None:
    """End this process without exit handlers."""
    with contextlib.suppress(Exception):  # the signal may have interrupted a write
        sys.stdout.flush()
    os._exit(CODES[signal.Signals(number)])


def begin() -> None:
    """Handle the signals until the session, unless the program that runs pytest does."""
    # The first to be registered runs last. Then Python would restore the system's handlers.
    atexit.register(_install, signal.SIG_IGN)
    for number in CODES:
        if _is_main() and signal.getsignal(number) in (USUAL[number], _after):
            signal.signal(number, _while_loading)


def end() -> None:
    """Restore the usual handlers."""
    for number in CODES:
        if _is_main() and signal.getsignal(number) is _while_loading:
            signal.signal(number, USUAL[number])


def end_quietly(number: int) -> None:
    """Handle a signal after the session, until Python has ended."""
    signal.signal(number, _after)
    atexit.register(_install, end_at_once)


def _install(handler: Any) -> None:
    for number in CODES:
        if _is_main() and signal.getsignal(number) in (_while_loading, _after, end_at_once):
            signal.signal(number, handler)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
