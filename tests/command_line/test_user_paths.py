"""Unusable paths on the command line: one message before anything is measured."""

from __future__ import annotations

import json
from typing import List

import pytest

from tests.support.harness import Project

NOBODY, LONG = "~nobody2/x", "x" * 300


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([f"--results-dir={NOBODY}"], "results there: ~nobody2 "),
        ([f"--results-dir={LONG}"], "results there: "),
        ([f"--baseline={NOBODY}", "--gate=5%"], f"the baseline {NOBODY} "),
        (["--baseline=main", f"--gate-policy={NOBODY}"], f"the policy {NOBODY} "),
        ([f"--against={NOBODY}"], f"--against={NOBODY}"),
        ([f"--against=./{LONG}"], "--against=./x"),
    ],
)
def test_an_unusable_path_is_one_message(project: Project, words: List[str], message: str) -> None:
    (project.folder / "baselines").mkdir()
    empty = json.dumps({"ipubench": {"format": 2}, "benchmarks": []})
    (project.folder / "baselines" / "main.json").write_text(empty)
    assert message in project.refused("-k", "beta", *words).text
    assert not project.journals()
