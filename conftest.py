"""Registers the plugins and the fixtures; handles Ctrl-C until pytest does."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Optional

import pytest


class _Interrupted(SystemExit, KeyboardInterrupt):
    """Exits Python without a traceback, and interrupts a pytest session that has begun."""


def _interrupted(number: int, frame: Optional[FrameType]) -> None:
    # While it loads, pytest captures output and shows it when an exception ends the loading.
    print("\ninterrupted while the suite was loaded: nothing was measured", file=sys.stderr)
    raise _Interrupted(int(pytest.ExitCode.INTERRUPTED))


# Pytest handles Ctrl-C after its configuration; before that Python would print a traceback.
if (
    threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    signal.signal(signal.SIGINT, _interrupted)

# Plugins import each other, so register them before any is imported.
pytest.register_assert_rewrite("ipubench.fixtures", "ipubench.plugins")

pytest_plugins = ["ipubench.plugins"]


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Leave Ctrl-C to pytest."""
    if signal.getsignal(signal.SIGINT) is _interrupted:
        signal.signal(signal.SIGINT, signal.default_int_handler)
