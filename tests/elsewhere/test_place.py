"""The other environment of `--against`, as found before any measurement."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ipubench.plugins.elsewhere.place import Place, find
from ipubench.plugins.elsewhere.revision import Revision
from ipubench.plugins.record.host_process import versions
from tests.support.harness import ROOT


def test_a_virtual_environment_is_called_by_its_link(tmp_path: Path) -> None:
    old = tmp_path / "old"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(old)], check=True)
    (site,) = old.glob("lib/python*/site-packages")
    # Instead of an installation: the packages of this environment.
    folders = [path for path in sys.path if path.endswith("site-packages")]
    (site / "installed.pth").write_text("\n".join(folders))
    python = str(old / "bin" / "python")
    found = find(python, ROOT)
    assert found.python == python
    assert found.changes(versions()) == "the same versions"


def test_a_revision_has_its_own_packages_before_ours_and_none_of_our_repositories() -> None:
    there = Revision("commit", Path("/tree"))
    ours = {"PYTHONPATH": "/sdk", "VIRTUAL_ENV": "/env", "GIT_DIR": "/own/.git", "HOME": "/h"}
    alike = Place(os.path.abspath(sys.executable), ["/tree"], revision=there)
    assert alike.variables(ours) == {
        "PYTHONPATH": "/tree:/sdk",
        "VIRTUAL_ENV": "/env",
        "HOME": "/h",
    }
    assert alike.variables({"HOME": "/h"}) == {"PYTHONPATH": "/tree", "HOME": "/h"}
    other = Place("/made/python", ["/tree"], revision=there)
    assert other.variables(ours) == {"PYTHONPATH": "/tree", "HOME": "/h"}


@pytest.mark.parametrize(
    ("answer", "said"),
    [("exit 1", "it prints nothing"), ("echo '[]'", r"\[\]"), ("echo '{}'", r"\{\}")],
)
def test_an_unsuitable_interpreter_is_refused(answer: str, said: str, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o755)
    with pytest.raises(pytest.UsageError, match=said):
        find(str(program), ROOT)
