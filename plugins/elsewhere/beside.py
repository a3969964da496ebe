"""Busy programs beside a measurement: they show how a case bears others."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import Iterator

#: Works and empties caches; ends with the process that has started it, however that ends.
PROGRAM = """\
import os
parent, block = os.getppid(), bytearray(1 << 22)
while os.getppid() == parent:
    sum(range(10000))
    bytes(block)
"""


@contextlib.contextmanager
def busy_programs(count: int) -> Iterator[None]:
    """Run busy programs meanwhile; to a process that this one starts they are others.

    Each has a session of its own, as other people's programs do: Linux shares CPUs by sessions.
    """
    running = []
    try:
        for _ in range(count):
            words = [sys.executable, "-S", "-c", PROGRAM]
            running.append(subprocess.Popen(words, start_new_session=True))
        yield
    finally:
        for program in running:
            program.kill()
            program.wait()
