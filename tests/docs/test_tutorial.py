"""The second tutorial works as it is written: its files, in a copy of the project."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict

import pytest

from tests.support.harness import ROOT

TUTORIAL = ROOT / "docs" / "tutorial" / "own-kernel.md"
LEFT_OUT = (".git", ".venv*", "results", "site", "__pycache__", ".*_cache", "*.egg-info")


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
    copy = tmp_path / "project"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
    files = files_of_the_tutorial()
    for path, text in files.items():
        (copy / path).write_text(text, encoding="utf-8")
    words = ["--device=cpu", "--budget=0.1", "-p", "no:cacheprovider", *files]
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=str(copy),
        env={**os.environ, "PYTHONPATH": str(copy), "IPUBENCH_LEASE_DIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout
    assert "bench_attention (sequences/s)" in answer.stdout
    assert re.search(r"attention-synthetic +[\d,.]+", answer.stdout)
    assert "3 passed" in answer.stdout
