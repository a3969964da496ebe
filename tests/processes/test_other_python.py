"""The other environment of `--against`, as it is found before anything is measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ipubench.plugins.processes.other_python import find
from ipubench.plugins.record.host_process import versions
from tests.support.harness import ROOT


def test_a_virtual_environment_is_asked_by_the_path_of_its_link(tmp_path: Path) -> None:
    old = tmp_path / "old"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(old)], check=True)
    (site,) = old.glob("lib/python*/site-packages")
    # In place of an installation: the packages of this environment.
    folders = [path for path in sys.path if path.endswith("site-packages")]
    (site / "installed.pth").write_text("\n".join(folders))
    python = str(old / "bin" / "python")
    found = find(python, ROOT)
    assert found.python == python
    assert found.changes(versions()) == "the same versions"
