"""A run's journal: its own, and never without its first line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import List

import pytest

from ipubench.fixtures.case import untrusted
from ipubench.fixtures.machine.files import numbered
from ipubench.plugins.baseline.format import BaselineError
from ipubench.plugins.baseline.runs import NO_FIRST_LINE, read_run
from ipubench.plugins.record.files import JsonLinesFile, json_lines, storable
from ipubench.plugins.results.lines import read_lines
from ipubench.plugins.results.run_results import RunResults
from tests.support.harness import Project

# Happens while the first line is written.
FULL = """
from ipubench.plugins.record.files import JsonLinesFile

def append(self, line):
    raise OSError(28, "No space left on device")

JsonLinesFile.append = append
"""
# The interrupted case of a killed run is measured separately, below the results folder.
ELSEWHERE = """
@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    yield
    assert not list(tmp_path.iterdir())
"""


def lines_of(path: Path) -> List[str]:
    return [json.loads(line)["type"] for line in path.read_text().splitlines()]


def test_an_existing_file_is_not_a_new_journal(tmp_path: Path) -> None:
    first, second = (JsonLinesFile(tmp_path / "run.jsonl") for _ in range(2))
    assert first.create()
    first.append({"type": "run"})
    assert not second.create()
    assert lines_of(first.path) == ["run"]
    names = numbered(first.path)
    assert [next(names).name for _ in range(3)] == ["run.jsonl", "run-2.jsonl", "run-3.jsonl"]


def test_a_case_that_changes_the_working_directory_is_recorded_in_the_original_one(
    project: Project,
) -> None:
    project.add_to_conftest(ELSEWHERE)
    trouble = "--set=trouble=none,kill"
    project.run("-k", "beta-synthetic", trouble).assert_code(-9)
    outcome = project.run("-k", "beta-synthetic", trouble, "--resume").assert_code(1)
    outcome.line("results: results/run-")
    outcome.line("1 failed, 20 deselected in")
    assert len(project.journals()) == 1 and len(project.records()) == 1


def test_a_run_that_cannot_write_its_first_line_leaves_no_journal(project: Project) -> None:
    (project.folder / "broken_run.py").write_text(FULL)
    path = {"PYTHONPATH": f"{project.environment['PYTHONPATH']}:{project.folder}"}
    outcome = project.run("-p", "broken_run", "-k", "beta-synthetic", env=path).assert_code(4)
    assert "Traceback" not in outcome.text
    assert list((project.folder / "results").iterdir()) == []


def test_a_journal_without_its_first_line_does_not_affect_others(project: Project) -> None:
    project.run("-k", "beta-synthetic", "--budget=0.3").assert_code(0)
    empty = project.folder / "results" / "run-20260101T000000-7.jsonl"
    empty.write_text('{"type": "run", "for')
    stored = read_run(project.folder / "results")
    assert len(stored.benchmarks) == 1
    problems = {run.name: run.trouble() for run in stored.runs}
    assert NO_FIRST_LINE in problems.pop(str(empty)) and list(problems.values()) == [""]
    for journal in project.journals():
        journal.write_text("")
    with pytest.raises(BaselineError, match=f"run-20260101T000000-7.jsonl: {NO_FIRST_LINE}"):
        read_run(project.folder / "results")


# A project that drops a case after all other hooks have selected.
SHARD = """

@pytest.hookimpl(hookwrapper=True)
def pytest_collection_modifyitems(config, items):
    yield
    config.hook.pytest_deselected(items=[items.pop(0)])
"""
SAVE = ("-k", "beta", "--baseline-save=main", "--processes=1")
GENERATED = "bench_fake.py::bench_fake[beta-generated]"


def test_a_case_that_is_dropped_last_is_not_part_of_the_run(project: Project) -> None:
    project.add_to_conftest(SHARD)
    outcome = project.run(*SAVE).assert_code(0)
    outcome.line("baseline with 1 case written")
    (run,) = read_run(project.journals()[-1]).runs
    assert (run.selected, run.outcomes) == ([GENERATED], {GENERATED: "passed"})


def test_earlier_passes_are_not_part_of_a_rerun_of_failures(project: Project) -> None:
    path = project.folder / "bench_fake.py"
    source = path.read_text()
    broken = source.replace('config.trouble == "raise"', 'config.data == "generated"')
    path.write_text(broken)
    words = (*SAVE, "-p", "cacheprovider", "--lf")
    project.run(*words).assert_code(1).line("baseline with 1 case written")
    path.write_text(source)
    outcome = project.run(*words).assert_code(0)
    outcome.line("baseline with 1 case written")
    (run,) = read_run(project.journals()[-1]).runs
    assert (run.selected, run.outcomes) == ([GENERATED], {GENERATED: "passed"})


@pytest.mark.parametrize(
    "line",
    [
        '{"type": []}',
        '{"type": {}, "case": "a"}',
        '{"type": "\\ud800"}',
        '{"type": "case", "\\ud800": 1}',
        '{"type": "outcome", "case": "\\ud800", "outcome": "passed"}',
        '{"type": "outcome", "case": 1}',
        '{"type": "outcome", "case": "x", "outcome": "passed", "unknown": {"a": []}}',
        '{"type": "unknown"}',
        "[]",
        "1",
        '"',
    ],
)
def test_a_strange_line_hides_no_other(tmp_path: Path, line: str) -> None:
    journal = JsonLinesFile(tmp_path / "run.jsonl")
    assert journal.create()
    journal.append({"type": "run", "format": 2})
    with journal.path.open("a") as file:
        file.write(f"{line}\n")
    journal.append({"type": "outcome", "case": "b", "outcome": "passed"})
    assert RunResults.of(read_lines(journal.path)).outcomes["b"] == "passed"


def test_a_line_with_too_many_values_is_never_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = JsonLinesFile(tmp_path / "run.jsonl")
    assert journal.create()
    journal.append({"type": "run", "x": [[]] * 100})
    journal.append({"type": "end", "x": []})
    monkeypatch.setattr(untrusted, "MOST_VALUES", 50)
    assert json_lines(journal.path) == [{"type": "end", "x": []}]


def test_a_text_that_no_file_can_hold_is_stored_escaped() -> None:
    assert storable({"a\ud800": ["b\udcff"]}) == {"a\\ud800": ["b\\udcff"]}
