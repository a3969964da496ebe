"""The first two tutorials work as written; tests/test_package.py has the third."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Dict

import pytest

from tests.support.harness import records_in
from tests.support.reader import DOCS, Reader, commands
from tests.support.repository import copy_of_the_project, run_pytest_in_copy

FIRST_RUN, OWN_KERNEL = (
    (DOCS / "tutorial" / name).read_text(encoding="utf-8")
    for name in ("first-run.md", "own-kernel.md")
)


def files_of_the_tutorial() -> Dict[str, str]:
    """Return path -> text for each file that the tutorial has the reader write."""
    return dict(re.findall(r"`([\w/]+\.py)`:\n\n```python\n(.*?)```", OWN_KERNEL, re.DOTALL))


@pytest.mark.nightly
@pytest.mark.framework
def test_the_first_run(tmp_path: Path) -> None:
    reader = Reader(tmp_path, "tensorflow")
    listing, measure, again, describe, sizes, mistake = commands(FIRST_RUN)
    assert "[dense-inference-synthetic]" in reader.pytest(listing).assert_code(0).text
    assert "2 passed" in reader.pytest(measure).assert_code(0).text
    assert "[1/" not in reader.pytest(again).assert_code(0).text  # both files are kept
    reader.pytest(describe).assert_code(0).line("  size=1024 (")
    reader.pytest(sizes).assert_code(0)
    assert list(records_in(reader.folder / "results")) == [
        f"dense-inference-synthetic-bs{size}-size2048" for size in (1, 8, 32)
    ]
    reader.pytest(mistake).assert_code(4).line("did you mean size?")


def test_the_second_tutorial_has_a_kernel_and_its_test() -> None:
    assert sorted(files_of_the_tutorial()) == [
        "bench_kernels/bench_attention.py",
        "tests/cases/test_kernel_attention.py",
    ]


@pytest.mark.nightly
@pytest.mark.framework
def test_the_tutorials_kernel_is_measured_and_passes_its_test(tmp_path: Path) -> None:
    """tests/nightly/test_second_tutorial.py runs its commands one by one."""
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
