"""Temporary folders: removed after the block, after the process, and after kill -9."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Iterator, Tuple

import pytest

from ipubench.fixtures.machine import scratch
from ipubench.fixtures.machine.scratch import ScratchError
from tests.support.harness import ROOT

PROGRAM = """
import sys
from ipubench.fixtures.machine import scratch
path = scratch.make("test")
(path / "file").write_text("x")
print(path, flush=True)
sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create temporary folders below the test's own, old enough to be cleaned up by others."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(scratch, "NEW_SECONDS", -1.0)
    monkeypatch.setattr(scratch, "SHARED_MEMORY", tmp_path)


@contextlib.contextmanager
def maker() -> Iterator[Tuple[subprocess.Popen[bytes], Path]]:
    """A process and the folder that it has created."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=str(ROOT),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        yield process, Path(os.fsdecode(process.stdout.readline()).strip())


def test_a_folder_exists_for_its_block_and_is_private(tmp_path: Path) -> None:
    with pytest.raises(KeyError), scratch.folder("test") as path:
        assert path.parent == tmp_path and path.stat().st_mode & 0o777 == 0o700
        (path / "file").write_text("x")
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_exits_leaves_nothing(tmp_path: Path) -> None:
    with maker() as (process, path):
        assert path.is_dir()
        process.communicate(b"\n")
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_the_next_run_removes_what_a_killed_process_left(tmp_path: Path) -> None:
    with maker() as (process, path), scratch.folder("test") as ours:
        scratch.remove_leftovers()
        assert path.is_dir() and ours.is_dir()  # both processes are alive
        process.send_signal(signal.SIGKILL)
        process.wait()
        scratch.remove_leftovers()
        assert not path.exists() and ours.is_dir()


def test_foreign_or_new_folders_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "precious").touch()
    (tmp_path / f"{scratch.PREFIX}link").symlink_to(target)
    (tmp_path / f"{scratch.PREFIX}file").touch()
    (tmp_path / f"{scratch.PREFIX}shared").mkdir()
    (tmp_path / f"{scratch.PREFIX}shared").chmod(0o777)
    os.mkfifo(tmp_path / f"{scratch.PREFIX}pipe")
    scratch.remove_leftovers()
    (tmp_path / f"{scratch.PREFIX}new").mkdir(mode=0o700)  # its maker will lock it
    monkeypatch.setattr(scratch, "NEW_SECONDS", 10.0)
    scratch.remove_leftovers()
    assert (target / "precious").exists()
    assert len(list(tmp_path.iterdir())) == 6


def test_a_missing_temporary_folder_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(ScratchError):
        scratch.make("test")
