"""The notebook's cells work as written."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ipubench.plugins.baseline.store import write
from tests.support.baselines import document, entry
from tests.support.harness import ROOT
from tests.support.reader import DOCS

PAGE = (DOCS / "tutorial" / "notebook.md").read_text(encoding="utf-8")


def test_the_cells_of_the_notebook_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas", reason="pip install pandas")
    pytest.importorskip("ruptures", reason="pip install ruptures")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    shutil.copy(ROOT / "tests" / "stored" / "report.json", tmp_path / "out" / "baseline.json")
    for day in range(1, 12):
        run = entry(time=f"2026-01-{day:02}T00:00:00Z", slower=1.25 if day > 6 else 1 + day / 5000)
        write(tmp_path / "baselines" / "history" / "m" / f"202601{day:02}.json", document(run))
    cells = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    cells[-1] = cells[-1].replace(".plot(logy=True)", "")  # the picture needs matplotlib
    program = "\n".join([*cells, "print(len(run), len(steps))"])
    found = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    assert found.stdout.split() == [b"2", b"1"]
