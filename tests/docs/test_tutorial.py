"""The second tutorial works as it is written: its files, in a copy of the project."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Dict

import pytest

from tests.support.harness import ROOT
from tests.support.repository import copy_of_the_project, run_pytest_in_copy

TUTORIAL = ROOT / "docs" / "tutorial" / "own-kernel.md"


def files_of_the_tutorial() -> Dict[str, str]:
    """Return path -> text of each file that the reader is told to write."""
    text = TUTORIAL.read_text(encoding="utf-8")
    return dict(re.findall(r"`([\w/]+\.py)`:\n\n```python\n(.*?)```", text, re.DOTALL))


def test_the_tutorial_has_a_kernel_and_its_test() -> None:
    assert sorted(files_of_the_tutorial()) == [
        "bench_kernels/bench_attention.py",
        "tests/cases/test_kernel_attention.py",
    ]


@pytest.mark.framework
def test_the_tutorials_kernel_is_measured_and_passes_its_test(tmp_path: Path) -> None:
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("needs TensorFlow: make setup installs it")
    copy = copy_of_the_project(tmp_path / "project")
    files = files_of_the_tutorial()
    for path, text in files.items():
        (copy / path).write_text(text, encoding="utf-8")
    answer = run_pytest_in_copy(copy, "--budget=0.1", *files).assert_code(0)
    assert "bench_attention (sequences/s)" in answer.text
    assert re.search(r"attention-synthetic +[\d,.]+", answer.text)
    assert "3 passed" in answer.text
