"""The search for garbage: off during an import, and not at the end of a process."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from ipubench.fixtures.machine.garbage import without_collecting

PROGRAM = """
import atexit, gc
from ipubench.fixtures.machine.garbage import end_without_collecting

class Cycle:
    def __init__(self):
        self.itself = self
    def __del__(self):
        print("collected")

gc.disable()
end_without_collecting()
end_without_collecting()
atexit.register(print, "exit handler")
Cycle()
"""


def test_a_process_ends_without_a_search_and_with_its_exit_handlers() -> None:
    assert subprocess.check_output([sys.executable, "-c", PROGRAM]) == b"exit handler\n"


@pytest.mark.parametrize("enabled", [True, False])
def test_collecting_is_afterwards_as_it_was(enabled: bool) -> None:
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(ValueError), without_collecting():
            assert not gc.isenabled()
            raise ValueError
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()
