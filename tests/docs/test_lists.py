"""Pages that list options, variables and markers lack none of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from ipubench import plugins
from tests.support.harness import ROOT
from tests.support.reader import DOCS


def test_the_page_for_users_of_pytest_benchmark_has_each_of_its_options(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "--help"]
    shown = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, check=True).stdout
    options = set(re.findall(r"^  (--benchmark-[a-z-]+)", shown.decode(), re.MULTILINE))
    page = (DOCS / "how-to" / "from-pytest-benchmark.md").read_text(encoding="utf-8")
    assert len(options) > 20
    assert options <= set(re.findall(r"`(--benchmark-[a-z-]+)`", page))


def test_the_page_of_variables_has_each_that_the_code_reads_and_no_other() -> None:
    variable = re.compile(r"\bIPUBENCH_[A-Z_]+\b")
    folders = [
        one for name in ("fixtures", "models", "plugins", "bench_*") for one in ROOT.glob(name)
    ]
    files = [one for folder in folders for one in folder.rglob("*.py")]
    found = [variable.findall(one.read_text(encoding="utf-8")) for one in files]
    page = (DOCS / "reference" / "environment.md").read_text(encoding="utf-8")
    named = {name for names in found for name in names}
    assert len(named) > 10
    assert named == set(variable.findall(page.split("## Markers")[0]))


def test_each_marker_is_documented() -> None:
    page = (DOCS / "reference" / "environment.md").read_text(encoding="utf-8")
    named = {re.split(r"[(:]", one)[0] for one in plugins.MARKERS} - {"cases"}
    assert named <= set(re.findall(r"\w+", page.split("## Markers")[1]))
