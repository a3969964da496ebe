"""The live runs of the gate study: the compared commits and the use of verdicts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.gate_study.collect import ROOT
from scripts.gate_study.live import EQUAL, SLOWER, make_clone

pytestmark = pytest.mark.skipif(
    not (ROOT / ".git").exists(), reason="a clone of the project is made: needs its git repository"
)


def changed(folder: Path, branch: str) -> str:
    command = ["git", "diff", "--unified=0", "base", branch]
    return subprocess.run(
        command, cwd=str(folder), check=True, stdout=subprocess.PIPE
    ).stdout.decode()


def test_one_commit_changes_nothing_and_the_other_changes_one_line(tmp_path: Path) -> None:
    make_clone(tmp_path / "clone", 0.1)
    assert changed(tmp_path / "clone", EQUAL) == ""
    lines = changed(tmp_path / "clone", SLOWER).splitlines()
    assert [line for line in lines if line[0] in "+-"][2:] == [
        "-        self.run(self.batches_per_step)",
        "+        self.run(max(1, round(1.1 * self.batches_per_step)))",
    ]
