"""Files in tests/stored from earlier runs can still be read: a journal, a baseline, a history."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, List

import pytest

from ipubench.plugins.baseline.runs import read_run
from ipubench.plugins.baseline.store import load_all, load_document
from ipubench.plugins.record.record import processes_of
from ipubench.plugins.record.structs import as_plain
from ipubench.plugins.results.lines import line_of, read_lines
from ipubench.plugins.results.run_results import RunResults
from tests.support.baselines import STORED, Shell
from tests.support.harness import Project

ALPHA = "bench_fake.py::bench_fake[alpha-bs8-synthetic-noise0.05]"
BETA = "bench_fake.py::bench_fake[beta-synthetic-noise0.05]"
JOURNAL = STORED / "run-20261127T162857-1811.jsonl"
# The journal's command line: --resume looks for a run with the same one.
SELECTION = ("-k", "alpha-bs8-synthetic or beta", "--set=noise=0.05", "--budget=1")
WORDS = (*SELECTION, "--baseline-save=main", "--processes=2")


def test_a_baseline() -> None:
    first, *_ = benchmarks = load_all(STORED / "baseline.json")
    assert len(benchmarks) == 3 and first.fullname == ALPHA
    assert first.record.throughput.median == pytest.approx(800, rel=0.01)
    assert [len(processes_of(one)) for one in benchmarks] == [2, 2, 2]


def test_a_journal() -> None:
    run = read_run(JOURNAL)
    assert [one.fullname for one in run.benchmarks] == [ALPHA, BETA]
    assert [len(processes_of(one)) for one in run.benchmarks] == [2, 2]


def lacking(now: Any, stored: Any, place: str = "") -> List[str]:
    """Return the places of a stored value that a copy lacks, or has otherwise; no null is one."""
    if isinstance(stored, dict):
        keys = [key for key, value in stored.items() if value is not None]
        return [one for key in keys for one in lacking(now.get(key), stored[key], f"{place}.{key}")]
    if isinstance(stored, list) and len(stored) == len(now or ()):
        return [one for pair in zip(now, stored) for one in lacking(*pair, place)]
    return [] if now == stored or not stored else [place]


@pytest.mark.parametrize("path", sorted(STORED.glob("*.jsonl")), ids=lambda path: path.stem)
def test_all_that_a_line_says_is_read(path: Path) -> None:
    for text in path.read_text(encoding="utf-8").splitlines():
        plain = json.loads(text)
        assert lacking(as_plain(line_of(plain)), plain) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["baseline.json", "report.json"])
def test_all_that_a_document_says_is_read(name: str) -> None:
    plain = json.loads((STORED / name).read_text(encoding="utf-8"))
    assert lacking(as_plain(load_document(STORED / name)), plain) == []


def test_a_judged_run_and_its_report_say_the_same() -> None:
    for name in ("judged.jsonl", "report.json"):
        (run,) = read_run(STORED / name).runs
        assert [one.kind for one in run.verdicts.values()] == ["pass", "new"]
        assert (run.baseline, run.gate, run.exit_code) == ("baselines/main.json", "gate 5.0%", 0)
    (pairs,) = RunResults.of(read_lines(STORED / "pairs.jsonl")).pairs.values()
    assert [pair.rounds is not None and pair.rounds.enough for pair in pairs] == [True] * 3


def test_a_history(shell: Shell) -> None:
    shutil.copytree(STORED / "history", shell.folder / "history")
    (trend,) = shell.json("history", "--folder=history")
    assert trend["case"] == BETA


@pytest.mark.slow
def test_a_run_resumes_from_a_journal(project: Project) -> None:
    """Results with this machine's versions count; the others are measured again."""
    (project.folder / "results").mkdir()
    shutil.copy(JOURNAL, project.folder / "results")
    outcome = project.run(*WORDS, "--resume").assert_code(0)
    assert outcome.line("resuming results/run-20261127T162857-1811.jsonl")
    assert len(outcome.table) == len(load_all(project.folder / "baselines" / "main.json")) == 3
