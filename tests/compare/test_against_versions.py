"""`--against=pip:PACKAGE==VERSION`: cases measured alternately with two versions of a package."""

from __future__ import annotations

import os

import pytest

from tests.support.harness import Project
from tests.support.wheels import install, only_from, wheel

pytestmark = pytest.mark.slow


@pytest.fixture
def quick(project: Project) -> Project:
    """A project that needs a package, with version 2.0 installed, and 1.0 on an index."""
    wheels, site = project.folder / "wheels", project.folder / "env" / "site-packages"
    install(wheel(wheels, "quick", "2.0", "SLOWDOWN = 1.0\n"), site)
    wheel(wheels, "quick", "1.0", "SLOWDOWN = 0.8\n")
    project.add_to_conftest(
        "import os\nimport quick\nos.environ['IPUBENCH_FAKE_SLOWDOWN'] = str(quick.SLOWDOWN)\n"
    )
    path = f"{site}{os.pathsep}{project.environment['PYTHONPATH']}"
    project.environment.update(only_from(wheels), PYTHONPATH=path)
    return project


def test_a_version_that_slows_a_case_is_found(quick: Project) -> None:
    words = ("-k", "beta-synthetic", "--gate-cap=3", "--gate=5%")
    outcome = quick.run(*words, "--against=pip:quick==1.0").assert_code(1)
    outcome.line("against pip:quick==1.0: quick 1.0 -> 2.0")
    outcome.line("beta-synthetic has become slower: 5000 items/s before, 4000 items/s now.")
    outcome.line("versions there and here: quick 1.0 -> 2.0")
    assert "Traceback" not in outcome.text
    outcome = quick.run(*words, "--against=pip:quick==2.0").assert_code(6)
    outcome.line("nothing is compared")
    # The tests import this tree's code, whatever is installed.
    (quick.folder / "quick.py").write_text("SLOWDOWN = 1.0\n")
    outcome = quick.run(*words, "--against=pip:quick==1.0").assert_code(4)
    outcome.line("name its tag")
