"""`--against=pip:PACKAGE==VERSION`: cases measured alternately with two versions of a package."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Tuple

import pytest

from tests.support.harness import Project
from tests.support.wheels import environment, install, only_from, wheel

pytestmark = pytest.mark.slow


def run(project: Project, site: Path, *words: str) -> Tuple[int, str]:
    """Run the cases with the interpreter of an environment; return its exit code and output."""
    python = site.parents[2] / "bin" / "python"
    selected = ("bench_fake.py", "--device=fake", "-k", "beta-synthetic")
    ended = subprocess.run(
        [str(python), "-m", "pytest", *selected, "--gate-cap=3", "--gate=5%", *words],
        cwd=str(project.folder),
        env={**project.environment, **only_from(project.folder / "wheels")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stdout


@pytest.mark.entry_point
def test_a_version_that_slows_a_case_is_found(project: Project) -> None:
    wheels, site = project.folder / "wheels", environment(project.folder / "env")
    install(wheel(wheels, "quick", "2.0", "SLOWDOWN = 1.0\n"), site)
    wheel(wheels, "quick", "1.0", "SLOWDOWN = 0.8\n")
    project.add_to_conftest(
        "import os\nimport quick\nos.environ['IPUBENCH_FAKE_SLOWDOWN'] = str(quick.SLOWDOWN)\n"
    )
    code, text = run(project, site, "--against=pip:quick==1.0")
    assert (code, "Traceback" in text) == (1, False), text
    assert "against pip:quick==1.0: quick 1.0 -> 2.0" in text
    assert "beta-synthetic has become slower: 5000 items/s before, 4000 items/s now." in text
    assert "versions there and here: quick 1.0 -> 2.0\n" in text
    code, text = run(project, site, "--against=pip:quick==2.0")
    assert (code, "nothing is compared" in text) == (6, True), text
    code, text = run(project, site, "--against=pip:quick==3.0")
    assert (code, "No matching distribution found for quick==3.0" in text) == (4, True), text
    # The tests import this tree's code, whatever is installed.
    (project.folder / "quick.py").write_text("SLOWDOWN = 1.0\n")
    code, text = run(project, site, "--against=pip:quick==1.0")
    assert (code, "name its tag" in text) == (4, True), text
