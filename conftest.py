"""Registers the plugins and the fixtures; answers Ctrl-C until pytest itself does."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Optional

import pytest


class _Interrupted(SystemExit, KeyboardInterrupt):
    """Ends Python without a traceback, and a session of pytest that has begun as Ctrl-C does."""


def _interrupted(number: int, frame: Optional[FrameType]) -> None:
    # Pytest captures while it loads, and shows what it captured once an exception ends that.
    print("\ninterrupted while the suite was loaded: nothing was measured", file=sys.stderr)
    raise _Interrupted(int(pytest.ExitCode.INTERRUPTED))


# Pytest answers Ctrl-C from its configuration on; before, Python would print a traceback.
if (
    threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    signal.signal(signal.SIGINT, _interrupted)

# Plugins import each other, so one may be there before pytest is told to rewrite it.
pytest.register_assert_rewrite("ipubench.fixtures", "ipubench.plugins")

pytest_plugins = ["ipubench.plugins"]


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Leave Ctrl-C to pytest."""
    if signal.getsignal(signal.SIGINT) is _interrupted:
        signal.signal(signal.SIGINT, signal.default_int_handler)
