"""Counts each test in children of this process (`--counting`).

They are forked after the collection, so no other test has run in them. What goes wrong in a child
ends only the child.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from typing import Callable

import pytest

#: The exit code of a child that has written a count, and that of one that has written none. A test
#: that ends its process uses others.
COUNTED, NOT_COUNTED = 117, 118


class ChildError(Exception):
    """A child was not made, or ended without a word; the message is the reason."""


def counts_in_child(config: pytest.Config, count: Callable[[], bool]) -> bool:
    """Return what ``count`` returns in a child: whether it counted. Raises ChildError."""
    _flush(config)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of a fork beside threads
            child = os.fork()
    except OSError as error:
        raise ChildError(f"the system makes no process that counts it: {error.strerror}") from None
    if not child:
        code = 1
        try:
            code = COUNTED if count() else NOT_COUNTED
        finally:
            _flush(config)
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        raise ChildError(f"{name} ended the process that counted it")
    code = os.WEXITSTATUS(status)
    if code not in (COUNTED, NOT_COUNTED):
        raise ChildError(f"the process that counted it ended with exit code {code}")
    return code == COUNTED


def _flush(config: pytest.Config) -> None:
    """Write what waits to be written, which otherwise both processes would write, or none."""
    terminal = config.pluginmanager.getplugin("terminalreporter")
    if terminal is not None:
        terminal.flush()
    sys.stdout.flush()
    sys.stderr.flush()
