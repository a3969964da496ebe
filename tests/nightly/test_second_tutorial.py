"""Runs each command of the second tutorial as written, with the reader's files."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.docs.test_tutorial import OWN_KERNEL, files_of_the_tutorial
from tests.support.reader import commands
from tests.support.repository import copy_of_the_project, run_pytest_in_copy

pytestmark = pytest.mark.framework


def test_each_command_of_the_second_tutorial(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow", reason="needs TensorFlow: make setup installs it")
    copy = copy_of_the_project(tmp_path / "project")
    for path, text in files_of_the_tutorial().items():
        (copy / path).write_text(text, encoding="utf-8")
    found = [run_pytest_in_copy(copy, *shlex.split(line)) for line in commands(OWN_KERNEL)]
    assert [outcome.code for outcome in found] == [0, 0, 0, 0]
    measured, described, sizes, _ = found
    assert "2 passed" in measured.text
    described.line("  length=64 (")
    assert "attention-synthetic-length256-width256" in sizes.text
