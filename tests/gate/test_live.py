"""The live runs of the gate study: what they compare, and what they make of the verdicts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.gate_study import live
from scripts.gate_study.collect import ROOT
from scripts.gate_study.live import EQUAL, SLOWER, Answer, LiveError, make_clone, row

pytestmark = pytest.mark.skipif(
    not (ROOT / ".git").exists(), reason="a clone of the project is made: needs its git repository"
)


def changed(folder: Path, branch: str) -> str:
    command = ["git", "diff", "--unified=0", "base", branch]
    return subprocess.run(
        command, cwd=str(folder), check=True, stdout=subprocess.PIPE
    ).stdout.decode()


def test_one_commit_changes_nothing_and_the_other_one_line(tmp_path: Path) -> None:
    make_clone(tmp_path / "clone", 0.1)
    assert changed(tmp_path / "clone", EQUAL) == ""
    lines = changed(tmp_path / "clone", SLOWER).splitlines()
    assert [line for line in lines if line[0] in "+-"][2:] == [
        "-        self.run(self.batches_per_step)",
        "+        self.run(max(1, round(1.1 * self.batches_per_step)))",
    ]


def test_a_line_that_is_gone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "ROUND", "no such line\n")
    with pytest.raises(LiveError, match="has no single line that runs a round: no such line"):
        make_clone(tmp_path / "clone", 0.1)


def test_a_commit_has_its_verdicts_changes_pairs_and_times() -> None:
    answers = [Answer("pass", -0.012, 4, 113.2), Answer("inconclusive", 0.01, 6, 174.6)]
    assert row(EQUAL, 0.1, answers) == [
        "nothing",
        "1 pass, 1 inconclusive",
        "-1.2% to +1.0%",
        "4, 6",
        "113 to 175 s",
    ]
    assert row(SLOWER, 0.1, answers)[0] == "10% more batches a round"
    unknown = Answer("inconclusive", None, 1, 60.0)
    assert row(EQUAL, 0.1, [*answers, unknown])[2] == "-1.2% to +1.0%"
    assert row(EQUAL, 0.1, [unknown])[2] == "-"
