"""Garbage collection: off during an import and at the end of a process."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from ipubench.fixtures.machine.garbage import without_garbage_collection

PROGRAM = """
import atexit, gc
from ipubench.fixtures.machine.garbage import exit_without_garbage_collection

class Cycle:
    def __init__(self):
        self.itself = self
    def __del__(self):
        print("collected")

gc.disable()
exit_without_garbage_collection()
exit_without_garbage_collection()
atexit.register(print, "exit handler")
Cycle()
"""


def test_a_process_ends_without_a_collection_but_runs_its_exit_handlers() -> None:
    assert subprocess.check_output([sys.executable, "-c", PROGRAM]) == b"exit handler\n"


@pytest.mark.parametrize("enabled", [True, False])
def test_collecting_is_restored_afterwards(enabled: bool) -> None:
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(ValueError), without_garbage_collection():
            assert not gc.isenabled()
            raise ValueError
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()
