"""Runs busy programs during a measurement, to find how much they slow a case down."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Iterator

from ipubench.fixtures.machine.process import ServerProcess

#: Works and empties caches.
PROGRAM = """\
block = bytearray(1 << 22)
while True:
    sum(range(10000))
    bytes(block)
"""


@contextlib.contextmanager
def busy_programs(count: int) -> Iterator[None]:
    """Run busy programs meanwhile.

    Each has a separate session, like the programs of other users: Linux shares CPUs by sessions.
    """
    command = [sys.executable, "-S", "-c", PROGRAM]
    with contextlib.ExitStack() as running:
        for _ in range(count):
            program = ServerProcess("a busy program", command, Path(os.devnull))
            running.callback(program.stop)
            program.start()
        yield
