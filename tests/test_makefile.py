"""Which target of make runs a test, by the test's marks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Dict, Set

import pytest
from _pytest.mark.expression import Expression

from tests.support.harness import ROOT

TARGETS = ("check", "test38", "test", "nightly")
PYTHON38 = "VENV38=.as-under-python-3.8"


@pytest.fixture(scope="module")
def selections() -> Dict[str, str]:
    """Target -> the expression with which it selects tests."""
    if shutil.which("make") is None:
        pytest.skip("needs make: apt-get install make")
    found = {}
    for target in TARGETS:
        # `test` also runs test38: the words of a dry run show whose environment.
        words = ["make", "--dry-run", target, "PYTHON38=python3", PYTHON38]
        own = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        own.pop("MFLAGS", None)
        text = subprocess.run(
            words, cwd=ROOT, env=own, stdout=subprocess.PIPE, check=True, encoding="utf-8"
        ).stdout
        of_38 = PYTHON38.split("=")[1]
        python = re.escape(of_38 if target == "test38" else ".venv")
        (found[target],) = re.findall(rf'{python}/bin/python -m pytest tests -m "?(.*?)"? -n', text)
    return found


@pytest.mark.parametrize(
    ("marks", "targets"),
    [
        ("", {"check", "test38", "test"}),
        ("suite entry_point", {"check", "test38", "test"}),
        ("slow entry_point", {"test38", "test"}),
        ("suite", {"test"}),
        ("slow", {"test"}),
        ("framework", {"test"}),
        ("nightly", {"nightly"}),
        ("suite entry_point nightly", {"nightly"}),
        ("slow framework nightly", {"nightly"}),
    ],
)
def test_a_target_runs_the_tests_of_its_marks(
    marks: str, targets: Set[str], selections: Dict[str, str]
) -> None:
    def has(name: str, /, **_: object) -> bool:
        return name in marks.split()

    found = {name for name, text in selections.items() if Expression.compile(text).evaluate(has)}
    assert found == targets
