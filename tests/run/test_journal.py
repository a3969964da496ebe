"""The file of a run: its own, and never without its first line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import List

from ipubench.fixtures.machine.files import numbered
from ipubench.plugins.record.files import JsonLinesFile
from tests.support.harness import Project

# As in containers, where the suite is often process 1; both runs begin within a second.
SAME_RUN = """
import os, time, types
from ipubench.plugins.baseline import history
from ipubench.plugins.run import journal

journal.time = types.SimpleNamespace(
    strftime=lambda *_: "20260101T000000", gmtime=time.gmtime, time=time.time
)
journal.os = history.os = types.SimpleNamespace(getpid=lambda: 1, environ=os.environ)
history.time_stamp = lambda: "2026-01-01T00:00:00Z"
"""


def lines_of(path: Path) -> List[str]:
    return [json.loads(line)["type"] for line in path.read_text().splitlines()]


def test_runs_of_one_second_and_one_number_keep_a_journal_and_a_history_each(
    project: Project,
) -> None:
    (project.folder / "same_run.py").write_text(SAME_RUN)
    words = ["-p", "same_run", "-k", "beta-synthetic", "--budget=0.3", "--history"]
    path = {"PYTHONPATH": f"{project.environment['PYTHONPATH']}:{project.folder}"}
    for _ in range(3):
        project.run(*words, env=path).assert_code(0)
    journals = project.journals()
    assert {journal.name for journal in journals} == {
        "run-20260101T000000-1.jsonl",
        "run-20260101T000000-1-2.jsonl",
        "run-20260101T000000-1-3.jsonl",
    }
    assert [lines_of(journal).count("run") for journal in journals] == [1, 1, 1]
    kept = (project.folder / "baselines" / "history").rglob("[!.]*.json")
    assert {file.name for file in kept} == {
        f"20260101T000000Z-unversioned-1{number}.json" for number in ("", "-2", "-3")
    }


def test_a_file_that_is_there_is_no_new_journal(tmp_path: Path) -> None:
    first, second = (JsonLinesFile(tmp_path / "run.jsonl") for _ in range(2))
    assert first.create()
    first.append({"type": "run"})
    assert not second.create()
    first.leave()
    assert not second.create()
    assert lines_of(first.path) == ["run"]
    names = numbered(first.path)
    assert [next(names).name for _ in range(3)] == ["run.jsonl", "run-2.jsonl", "run-3.jsonl"]
