"""Locks on files that others may have created."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ipubench.fixtures.machine.locks import LockTimeout, locked
from tests.support.harness import ROOT

HOLD = """
import os, sys, time
from pathlib import Path
from ipubench.fixtures.machine.locks import locked
with locked(Path(sys.argv[1])):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    print("held", flush=True)
    sys.stdin.read()
"""


def test_only_one_process_holds_a_lock_at_a_time(tmp_path: Path) -> None:
    for _ in range(2):
        with locked(tmp_path / "lock"), pytest.raises(LockTimeout), locked(tmp_path / "lock", 0.01):
            pass


def test_something_other_than_a_file_is_not_a_lock(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "to a file").symlink_to("precious")
    (tmp_path / "to nothing").symlink_to("gone")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    before = set(tmp_path.iterdir())
    for name in ("to a file", "to nothing", "pipe", "folder"):
        with pytest.raises(OSError, match=name), locked(tmp_path / name):
            pass
    assert set(tmp_path.iterdir()) == before
    assert (tmp_path / "precious").read_text() == "mine"


def test_the_lock_of_another_process_is_free_when_it_ends(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "lock")],
        cwd=str(ROOT),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert holder.stdout is not None and holder.stdin is not None
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LockTimeout), locked(tmp_path / "lock", 0):
            pass
        holder.stdin.close()
        holder.wait()
        # A process that it forked meanwhile is still alive.
        with locked(tmp_path / "lock", 0):
            pass
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.stdout.close()
        holder.wait()
