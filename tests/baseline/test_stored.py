"""What runs once wrote, in tests/stored, is still read: a journal, a baseline, a history."""

from __future__ import annotations

import shutil

import pytest

from ipubench.plugins.baseline.runs import read_run
from ipubench.plugins.baseline.store import load_all
from ipubench.plugins.record.record import processes_of
from tests.support.baselines import STORED, Shell
from tests.support.harness import Project

ALPHA = "bench_fake.py::bench_fake[alpha-bs8-synthetic-noise0.05]"
BETA = "bench_fake.py::bench_fake[beta-synthetic-noise0.05]"
JOURNAL = STORED / "run-20261127T162857-1811.jsonl"
# Of the run that wrote the journal: --resume looks for one with the same command line.
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


def test_a_history(shell: Shell) -> None:
    shutil.copytree(STORED / "history", shell.folder / "history")
    (trend,) = shell.json("history", "--folder=history")
    assert trend["case"] == BETA


@pytest.mark.slow
def test_a_run_goes_on_from_a_journal(project: Project) -> None:
    """Results of this machine's versions count; of others' they are measured anew."""
    (project.folder / "results").mkdir()
    shutil.copy(JOURNAL, project.folder / "results")
    outcome = project.run(*WORDS, "--resume").assert_code(0)
    assert outcome.line("resuming results/run-20261127T162857-1811.jsonl")
    assert len(outcome.table) == len(load_all(project.folder / "baselines" / "main.json")) == 3
