"""Temporary folders: gone after the block, after the process, and after kill -9."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ipubench.fixtures.machine import scratch
from ipubench.fixtures.machine.scratch import ScratchError
from tests.support.harness import ROOT

# Makes a folder with a file, says where, and then what the test asks for.
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
    """Have temporary folders made below the test's own, old enough for others to look at."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(scratch, "NEW_SECONDS", -1.0)
    monkeypatch.setattr(scratch, "SHARED_MEMORY", tmp_path)


def started() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=str(ROOT),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def said(process: subprocess.Popen[str]) -> Path:
    assert process.stdout is not None
    return Path(process.stdout.readline().strip())


def test_a_folder_is_there_for_its_block_and_private(tmp_path: Path) -> None:
    with pytest.raises(KeyError), scratch.folder("test") as path:
        assert path.parent == tmp_path and path.stat().st_mode & 0o777 == 0o700
        (path / "file").write_text("x")
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_ends_leaves_nothing(tmp_path: Path) -> None:
    with started() as process:
        assert said(process).is_dir()
        process.communicate("\n")
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_goes_with_the_next_run(tmp_path: Path) -> None:
    with started() as process, scratch.folder("test") as ours:
        path = said(process)
        scratch.remove_left()
        assert path.is_dir() and ours.is_dir()  # both processes live
        process.send_signal(signal.SIGKILL)
        process.wait()
        scratch.remove_left()
        assert not path.exists() and ours.is_dir()


def test_a_new_folder_is_left_until_its_maker_has_locked_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = tmp_path / f"{scratch.PREFIX}test-1"
    new.mkdir(mode=0o700)
    monkeypatch.setattr(scratch, "NEW_SECONDS", 10.0)
    scratch.remove_left()
    assert new.is_dir()


def test_what_is_not_ours_is_left(tmp_path: Path) -> None:
    """Links, files and folders that others may write to are nobody's scratch."""
    target = tmp_path / "target"
    target.mkdir()
    (target / "precious").touch()
    (tmp_path / f"{scratch.PREFIX}link").symlink_to(target)
    (tmp_path / f"{scratch.PREFIX}file").touch()
    shared = tmp_path / f"{scratch.PREFIX}shared"
    shared.mkdir()
    shared.chmod(0o777)
    os.mkfifo(tmp_path / f"{scratch.PREFIX}pipe")
    scratch.remove_left()
    assert (target / "precious").exists()
    assert len(list(tmp_path.iterdir())) == 5


def test_no_folder_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    with pytest.raises(ScratchError, match="no temporary folder can be made in .*; make room"):
        scratch.make("test")
