"""A case whose temporary folder is removed: one message, and the run goes on."""

from __future__ import annotations

import pytest

from tests.support.harness import Project


@pytest.mark.parametrize("error", ["(place / 'file').open('w')", "raise RuntimeError('no model')"])
def test_one_message_and_the_run_goes_on(project: Project, error: str) -> None:
    path = project.folder / "bench_fake.py"
    text = path.read_text()
    old = 'raise RuntimeError("an unforeseen error")'
    assert old in text
    lines = ["from ipubench.fixtures.machine import scratch", "place = scratch.make('x')"]
    lines += ["place.rmdir()", error]
    path.write_text(text.replace(old, "\n        ".join(lines)))
    outcome = project.run("-k", "beta-synthetic", "--set=trouble=raise,none").assert_code(1)
    assert "1 failed, 1 passed" in outcome.text
    outcome.line("the temporary folder /")
    outcome.line("was removed while the run used it")
    assert "place.rmdir" not in outcome.text  # no traceback


def test_run_that_starts_says_it(project: Project) -> None:
    with (project.folder / "conftest.py").open("a") as conftest:
        conftest.write(
            "\n\nimport os, shutil\n\n\ndef pytest_sessionstart(session):\n"
            "    shutil.rmtree(os.environ['TMPDIR'], ignore_errors=True)\n"
        )
    temporary = project.folder / "temporary"
    temporary.mkdir()
    outcome = project.run("-k", "beta", "-n", "2", env={"TMPDIR": str(temporary)}).assert_code(4)
    outcome.line(f"ERROR: the temporary folder {temporary} was removed while the run started")
    assert "INTERNALERROR" not in outcome.text
    assert "Traceback" not in outcome.text
