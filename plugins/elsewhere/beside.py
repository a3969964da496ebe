"""Busy programs that run during a measurement: they show how a case bears others."""

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
    """Run busy programs meanwhile; to a process that this one starts they are others.

    Each has a session of its own, as other people's programs do: Linux shares CPUs by sessions.
    """
    command = [sys.executable, "-S", "-c", PROGRAM]
    with contextlib.ExitStack() as running:
        for _ in range(count):
            program = ServerProcess("a busy program", command, Path(os.devnull))
            running.callback(program.stop)
            program.start()
        yield
